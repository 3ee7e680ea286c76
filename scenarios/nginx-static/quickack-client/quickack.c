/* read(2), and then TCP_QUICKACK: what a client that cannot change its peer may do. tcp(7): the option is not
 * permanent, it has to be set again after every read. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

ssize_t read(int file, void *buffer, size_t size)
{
    const int on = 1;
    const ssize_t got = syscall(SYS_read, file, buffer, size);
    const int saved = errno;

    setsockopt(file, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on); /* fails on what is no TCP socket: no harm */
    errno = saved;
    return got;
}
