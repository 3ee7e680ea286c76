<?php
// Send 30 short mails over one connection; with the argument "nodelay", have PHP set TCP_NODELAY on it.

use PHPMailer\PHPMailer\PHPMailer;

require 'root/usr/share/php/libphp-phpmailer/autoload.php';

$mail = new PHPMailer(true);
$mail->isSMTP();
$mail->Host = '127.0.0.1';
$mail->Port = 8025;
$mail->SMTPKeepAlive = true;
if ($argc > 1) {
    $mail->SMTPOptions = ['socket' => ['tcp_nodelay' => true]];
}
$mail->setFrom('me@example.org');
$mail->addAddress('you@example.org');
$mail->Subject = 'hello';
$mail->Body = "Hello, world\n";
for ($i = 0; $i < 30; $i++) {
    $mail->send();
}
$mail->smtpClose();
