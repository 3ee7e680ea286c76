"""A Thrift server made with the factories it is given by default, or with buffered transports."""

import sys

from answers import Answers
from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TBufferedTransportFactory


class Handler(Answers.Iface):
    def answer(self, question):
        return question * 6


processor = Answers.Processor(Handler())
factories = [TBufferedTransportFactory(), TBinaryProtocolFactory()] if sys.argv[1] == "buffered" else []
TThreadedServer(processor, TServerSocket("127.0.0.1", 9090), *factories, daemon=True).serve()
