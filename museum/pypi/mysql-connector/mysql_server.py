"""A MySQL server made with mysql-mimic, on asyncio, which sets TCP_NODELAY."""

import asyncio

from mysql_mimic import MysqlServer, Session


class OneAnswer(Session):
    async def query(self, expression, sql, attrs):
        return [(42,)], ["answer"]


async def main():
    server = MysqlServer(session_factory=OneAnswer)
    await server.start_server(host="127.0.0.1", port=3306)
    print(3306, flush=True)
    await server.serve_forever()


asyncio.run(main())
