"""A log kept by a Pyro5 daemon that sets TCP_NODELAY."""

import Pyro5.api


@Pyro5.api.expose
class Log:
    def __init__(self):
        self.lines = []

    @Pyro5.api.oneway
    def write(self, line):
        self.lines.append(line)

    def size(self):
        return 1000 + len(self.lines)


Pyro5.config.SOCK_NODELAY = True
with Pyro5.api.Daemon("127.0.0.1") as daemon:
    print(daemon.register(Log(), "log"), flush=True)
    daemon.requestLoop()
