"""Run 30 statements on each of two connections, with MySQL Connector/Python; a prepared one is closed after each."""

import subprocess
import sys

import mysql.connector

server = subprocess.Popen([sys.executable, "mysql_server.py"], stdout=subprocess.PIPE)
try:
    port = int(server.stdout.readline())
    for _ in range(2):
        with mysql.connector.connect(
            host="127.0.0.1", port=port, user="user", ssl_disabled=True, use_pure=True
        ) as connection:
            for number in range(30):
                with connection.cursor(prepared=sys.argv[1] == "prepared") as cursor:
                    cursor.execute("SELECT answer FROM questions WHERE number = %s", (number,))
                    assert cursor.fetchall() == [(42,)]
finally:
    server.terminate()
    server.wait()
