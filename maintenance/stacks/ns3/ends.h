// The two ends of a case in ns-3, and the steps of their programs: main.py runs them.
using namespace ns3;

const Time COST = MicroSeconds(20);   // of a write
const Time BETWEEN = MilliSeconds(100);  // connections
const int PORT = 7000;

struct Step { char kind; int number; };   // w: write, r: read so many bytes, p: pause so many ms
struct Write { int port; long end, bytes, at; };   // at: ns

struct End {   // one end of one connection: it does its steps, again and again
  Ptr<Socket> socket;
  std::vector<Step> steps;
  int left, port;
  std::vector<Write>* log;
  std::function<void()> over;
  size_t next = 0;
  long unread = 0, written = 0;

  void Begin() {
    socket->SetRecvCallback(MakeCallback(&End::Receive, this));
    Go();
  }
  void Receive(Ptr<Socket>) {
    while (Ptr<Packet> packet = socket->Recv()) {
      if (!packet->GetSize()) break;
      unread += packet->GetSize();
    }
    if (next < steps.size() && steps[next].kind == 'r') Go();
  }
  void Go() {
    if (next == steps.size()) { next = 0; left--; }
    if (!left) { next = steps.size(); return over(); }
    Step step = steps[next];
    if (step.kind == 'r' && unread < step.number) return;
    next++;
    if (step.kind == 'r') { unread -= step.number; return Go(); }
    if (step.kind == 'p') { Simulator::Schedule(MilliSeconds(step.number), &End::Go, this); return; }
    written += step.number;
    log->push_back({port, written, step.number, Simulator::Now().GetNanoSeconds()});
    socket->Send(Create<Packet>(step.number));
    Simulator::Schedule(COST, &End::Go, this);
  }
};

struct Case {
  std::vector<Step> server, client;
  int connections, exchanges;
  std::vector<Write> served, asked;
  NodeContainer nodes;
  Address to;

  void Accept(Ptr<Socket> socket, const Address& from) {
    auto end = new End{socket, server, exchanges, InetSocketAddress::ConvertFrom(from).GetPort(), &served, [] {}};
    end->Begin();
  }
  void Connect() {
    if (!connections--) return;
    Ptr<Socket> socket = Socket::CreateSocket(nodes.Get(0), TcpSocketFactory::GetTypeId());
    socket->SetConnectCallback(MakeCallback(&Case::Connected, this), MakeNullCallback<void, Ptr<Socket>>());
    socket->Bind();
    socket->Connect(to);
  }
  void Connected(Ptr<Socket> socket) {
    auto over = [this, socket] { socket->Close(); Simulator::Schedule(BETWEEN, &Case::Connect, this); };
    auto end = new End{socket, client, exchanges, 0, &asked, over};
    end->Begin();
  }
  void Run(const std::string& folder, bool nodelay) {
    Config::SetDefault("ns3::TcpSocket::TcpNoDelay", BooleanValue(nodelay));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::PcapFileWrapper::NanosecMode", BooleanValue(true));
    Config::SetDefault("ns3::PcapFileWrapper::CaptureSize", UintegerValue(128));
    nodes.Create(2);
    CsmaHelper link;
    link.SetChannelAttribute("DataRate", StringValue("1Gbps"));
    link.SetChannelAttribute("Delay", TimeValue(MicroSeconds(20)));
    NetDeviceContainer devices = link.Install(nodes);
    InternetStackHelper().Install(nodes);
    Ipv4AddressHelper addresses("10.78.0.0", "255.255.255.0");
    to = InetSocketAddress(addresses.Assign(devices).GetAddress(1), PORT);
    link.EnablePcap(folder + "/capture", devices.Get(1), true);
    Ptr<Socket> listening = Socket::CreateSocket(nodes.Get(1), TcpSocketFactory::GetTypeId());
    listening->Bind(InetSocketAddress(Ipv4Address::GetAny(), PORT));
    listening->Listen();
    listening->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                 MakeCallback(&Case::Accept, this));
    Simulator::Schedule(Seconds(1), &Case::Connect, this);
    Simulator::Run();
    Simulator::Destroy();
  }
};
