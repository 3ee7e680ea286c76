"""An SSH server that forwards connections, made with asyncssh, which sets TCP_NODELAY."""

import asyncio

import asyncssh


class Server(asyncssh.SSHServer):
    def password_auth_supported(self):
        return True

    def validate_password(self, username, password):
        return password == "secret"

    def connection_requested(self, *addresses):
        return True


async def main():
    key = asyncssh.generate_private_key("ssh-ed25519")
    listener = await asyncssh.listen("127.0.0.1", 0, server_factory=Server, server_host_keys=[key])
    print(listener.get_port(), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
