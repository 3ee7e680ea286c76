"""A Thrift server made with the factories it is given by default, or with buffered transports.

The service, i32 answer(1: i32 question), is written by hand in the form that Thrift's compiler gives it.
"""

import sys

from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.Thrift import TMessageType, TProcessor, TType
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TBufferedTransportFactory


class Processor(TProcessor):
    def process(self, calls, replies):
        name, _, number = calls.readMessageBegin()
        calls.skip(TType.STRUCT)
        calls.readMessageEnd()
        replies.writeMessageBegin(name, TMessageType.REPLY, number)
        replies.writeStructBegin("answer_result")
        replies.writeFieldBegin("success", TType.I32, 0)
        replies.writeI32(42)
        replies.writeFieldEnd()
        replies.writeFieldStop()
        replies.writeStructEnd()
        replies.writeMessageEnd()
        replies.trans.flush()
        return True


factories = [TBufferedTransportFactory(), TBinaryProtocolFactory()] if sys.argv[1] == "buffered" else []
TThreadedServer(Processor(), TServerSocket("127.0.0.1", 9090), *factories, daemon=True).serve()
