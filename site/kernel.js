// One end of a TCP connection: what RFC 9293, RFC 1122 and Linux do with what a program writes and the peer sends.
//
// Times are microseconds, sizes bytes of payload. Linux's functions are those of net/ipv4/tcp_output.c, tcp_input.c,
// tcp_timer.c and tcp.c, as of 6.18. The variables have the names they have there. A kernel says what it does to its
// `world`, which carries segments, keeps the clock, and writes the log that the page shows.

const MS = 1000;
const TCP_MSS_DEFAULT = 536; // what a receiver takes a full segment for until it has seen a larger one
const TCP_RTO_MIN = 200 * MS;
const TCP_TIMEOUT_MIN = 2 * MS;
const TCP_DELACK_MAX = 200 * MS;
const TCP_INIT_CWND = 10;

export class Kernel {
  // name: "client" or "server". options: nagle, delack (ms), quick, pingpong, quickack. path: mss, window, hz.
  constructor(name, options, path, world) {
    Object.assign(this, { name, options, path, world, peer: null });
    // The sender (RFC 9293 §3.3.1)
    this.snd_una = 0; // oldest byte not acknowledged
    this.snd_nxt = 0; // next byte to send
    this.snd_sml = 0; // end of the last small segment (Minshall)
    this.write_seq = 0; // end of what the program wrote
    this.corked = false; // TCP_CORK, or MSG_MORE on the last write
    this.outstanding = []; // segments not acknowledged
    this.cwnd = TCP_INIT_CWND;
    this.srtt = 0;
    this.held = null; // what waits, since when, behind what
    this.probe = null; // timer: loss probe (RFC 8985 §7), or probe of a corked queue
    this.probed = 0; // the end of what a loss probe repeated or sent: one probe per flight
    // The receiver
    this.rcv_nxt = 0;
    this.rcv_wup = 0; // what was acknowledged last
    this.rcv_mss = Math.min(TCP_MSS_DEFAULT, path.mss); // tcp_initialize_rcv_mss
    this.unread = 0; // bytes in the receive queue
    this.quick = 0; // ACKs yet to be sent at once
    this.pingpong = 0;
    this.ato = 0; // the delayed ACK's timeout, µs; 0: no data yet
    this.lrcvtime = -Infinity;
    this.scheduled = this.pushed = this.pushed2 = false; // icsk_ack.pending
    this.timer = null; // the delayed ACK's
    this.delay = null; // the same, as the page draws it
  }

  // ---- sending

  // tcp_sendmsg: the queue is one stream of bytes; what is not sent yet grows together.
  write(bytes, more) {
    this.write_seq += bytes;
    this.world.note(
      this,
      "write",
      `${this.name} writes ${bytes} B${more ? " and says that more follows" : ""}`,
      "RFC 9293 §3.9.1.2 SEND; tcp_sendmsg",
    );
    this.push("write", null, more);
  }

  cork(on) {
    this.corked = on;
    this.world.note(this, "cork", `${this.name} ${on ? "sets" : "clears"} TCP_CORK`, "tcp(7); tcp_sock_set_cork");
    if (!on) this.push("uncork", null);
  }

  get full() {
    // the largest segment: tcp_current_mss, and tcp_bound_to_half_wnd
    const { mss, window } = this.path;
    return window > TCP_MSS_DEFAULT ? Math.min(mss, window >> 1) : mss;
  }

  // tcp_nagle_check: why a segment of that size must wait now, or null.
  mustWait(size, more) {
    if (size >= this.full) return null; // a full segment is never held
    if (this.corked || more) return "cork";
    const { nagle } = this.options;
    if (nagle === "off" || !this.outstanding.length) return null;
    if (nagle === "rfc896") return "nagle"; // any data is outstanding
    return this.snd_sml > this.snd_una && this.snd_sml <= this.snd_nxt ? "nagle" : null; // tcp_minshall_check
  }

  // tcp_write_xmit: send what may be sent. cause: what gave the occasion; ack: the segment, if it was one.
  push(cause, ack, more = false) {
    while (this.snd_nxt < this.write_seq) {
      const left = this.write_seq - this.snd_nxt;
      const size = Math.min(left, this.full);
      if (this.outstanding.length >= this.cwnd) return; // tcp_cwnd_test
      const why = this.mustWait(size, more);
      if (why) {
        this.hold(why, left);
        return;
      }
      this.release(cause, ack);
      this.transmit(size);
    }
  }

  hold(why, left) {
    const behind = this.outstanding.at(-1) ?? null;
    if (this.held) {
      this.held.bytes = left;
    } else {
      this.held = {
        by: this.name,
        why,
        since: this.world.now,
        bytes: left,
        behind,
        until: null,
        cause: null,
        ack: null,
      };
      this.world.holds.push(this.held);
    }
    const cites =
      why === "cork"
        ? "tcp(7) TCP_CORK; tcp_nagle_check"
        : {
            minshall: "RFC 9293 §3.7.4; tcp_nagle_check, tcp_minshall_check",
            rfc896: "RFC 896; RFC 9293 §3.7.4",
          }[this.options.nagle];
    const reason =
      why === "cork" ? "it is corked" : `${behind.size} B are not acknowledged, less than a full segment`;
    const plain = this.options.nagle === "rfc896" ? `${this.snd_nxt - this.snd_una} B are not acknowledged` : reason;
    this.world.note(this, "hold", `${this.name}'s kernel holds ${left} B: ${why === "cork" ? reason : plain}`, cites);
    if (!this.outstanding.length) this.armProbe(); // tcp_check_probe_timer: lets a forgotten cork go after 200 ms
  }

  release(cause, ack) {
    if (!this.held) return;
    Object.assign(this.held, { until: this.world.now, cause, ack });
    this.held = null;
  }

  transmit(size, again = null) {
    const seq = again ? again.seq : this.snd_nxt;
    const segment = this.segment({ seq, size, again: Boolean(again), why: again ? "probe" : "data" });
    if (!again) {
      this.snd_nxt += size;
      if (size < this.full) this.snd_sml = this.snd_nxt; // tcp_minshall_update
      this.outstanding.push(segment);
      // tcp_event_data_sent: an answer within ato of what was received makes the connection more interactive.
      if (this.world.now - this.lrcvtime < this.ato) this.pingpong = Math.min(this.pingpong + 1, 255);
    }
    this.world.note(
      this,
      "send",
      `${this.name} sends ${size} B${again ? " again" : ""}`,
      again ? "RFC 8985 §7.3; tcp_send_loss_probe" : "RFC 9293 §3.9.1.2; tcp_write_xmit",
      segment,
    );
    if (!again) this.armProbe();
    this.world.carry(segment);
  }

  // Every segment acknowledges (tcp_event_ack_sent): nothing is left for the timer to do.
  segment(fields) {
    if (this.quick && this.scheduled) {
      // tcp_dec_quickack_mode
      this.quick -= 1;
      if (!this.quick) this.ato = this.atoMin;
    }
    const late = fields.why === "timer";
    if (this.delay) Object.assign(this.delay, { until: this.world.now, late });
    this.delay = null;
    this.scheduled = this.pushed = this.pushed2 = false;
    this.world.cancel(this.timer);
    this.timer = null;
    this.rcv_wup = this.rcv_nxt;
    return {
      from: this.name,
      at: this.world.now,
      ack: this.rcv_nxt,
      late,
      seq: this.snd_nxt,
      size: 0,
      flags: "ACK",
      ...fields,
    };
  }

  acknowledge(why, cites, because) {
    const segment = this.segment({ why });
    this.world.note(this, "ack", `${this.name} acknowledges: ${because}`, cites, segment);
    this.world.carry(segment);
  }

  // ---- receiving

  // tcp_rcv_established: the acknowledgement first, then the data, then what may be sent, then the ACK.
  receive(segment) {
    const acked = this.takeAck(segment);
    if (segment.size) this.takeData(segment);
    if (acked) this.push("ack", segment);
    if (segment.size) this.ackCheck(segment);
  }

  takeAck(segment) {
    if (segment.ack <= this.snd_una) return false;
    this.snd_una = segment.ack;
    while (this.outstanding.length && this.outstanding[0].seq + this.outstanding[0].size <= this.snd_una) {
      const first = this.outstanding.shift();
      const rtt = this.world.now - first.at;
      this.srtt = this.srtt ? this.srtt + (rtt - this.srtt) / 8 : rtt; // RFC 6298 §2
      this.cwnd += 1; // slow start; nothing is lost here
    }
    this.world.cancel(this.probe);
    this.probe = null;
    if (this.outstanding.length) this.armProbe();
    this.world.note(
      this,
      "acked",
      `${this.name} has ${this.snd_nxt - this.snd_una} B unacknowledged now`,
      "RFC 9293 §3.10.7.4; tcp_ack",
      segment,
    );
    return true;
  }

  // tcp_event_data_recv
  takeData(segment) {
    if (segment.seq + segment.size <= this.rcv_nxt) {
      // a copy: tcp_send_dupack
      this.scheduled = true;
      return;
    }
    const { now } = this.world;
    this.rcv_nxt = segment.seq + segment.size;
    this.unread += segment.size;
    this.scheduled = true;
    this.measureMss(segment.size);
    const since = now - this.lrcvtime;
    if (!this.ato) {
      // the first data
      this.quick = this.options.quick; // tcp_incr_quickack: TCP_MAX_QUICKACKS, 16
      this.ato = this.atoMin;
    } else if (since <= this.atoMin / 2) {
      this.ato = this.ato / 2 + this.atoMin / 2;
    } else if (since < this.ato) {
      this.ato = Math.min(this.ato / 2 + since, this.rto);
    } else if (since > this.rto) {
      this.quick = Math.max(this.quick, this.options.quick);
    }
    this.lrcvtime = now;
    this.world.note(
      this,
      "receive",
      `${segment.size} B arrive at ${this.name}`,
      "RFC 9293 §3.10.7.4; tcp_data_queue",
      segment,
    );
    this.world.arrived(this);
  }

  // tcp_measure_rcv_mss: what this end takes for a full segment of its peer.
  measureMss(size) {
    if (size >= this.rcv_mss) {
      this.rcv_mss = Math.min(size, this.path.mss);
      if (size >= this.full) return; // a full segment with more behind it has no PSH
    }
    if (this.pushed) this.pushed2 = true;
    this.pushed = true;
  }

  get interactive() {
    // inet_csk_in_pingpong_mode
    return this.pingpong >= this.options.pingpong;
  }

  // __tcp_ack_snd_check: acknowledge now or later?
  ackCheck(segment) {
    if (!this.scheduled) return; // what was just sent carried the ACK
    const unacked = this.rcv_nxt - this.rcv_wup;
    if (segment.again) {
      this.acknowledge("copy", "RFC 9293 §3.10.7.4; tcp_send_dupack", "it has this already");
    } else if (unacked > this.rcv_mss) {
      this.acknowledge("second", "RFC 1122 §4.2.3.2; __tcp_ack_snd_check", "more than one full segment has come");
    } else if (this.options.quickack || !this.options.delack) {
      this.acknowledge("quickack", "ip-route(8) quickack; tcp_in_quickack_mode", "it never delays an ACK");
    } else if (this.quick && !this.interactive) {
      this.acknowledge("quick", "tcp_in_quickack_mode", `quick ACK, ${this.quick - 1} more at once`);
    } else {
      this.delayAck();
    }
  }

  get atoMin() {
    // TCP_ATO_MIN
    return this.options.delack * MS;
  }

  get rto() {
    // RFC 6298 §2; tcp_set_rto
    return this.srtt + TCP_RTO_MIN;
  }

  // tcp_send_delayed_ack
  delayAck() {
    let { ato } = this;
    if (ato > this.atoMin)
      ato = Math.min(ato, Math.max(this.srtt, this.atoMin), Math.max(TCP_DELACK_MAX, this.atoMin));
    if (this.timer && this.timer.time <= this.world.now + ato / 4) {
      this.acknowledge("soon", "tcp_send_delayed_ack", "its timer would fire soon");
      return;
    }
    if (!this.timer) {
      this.timer = this.world.at(this.world.tick(ato), () => this.delackTimer());
      this.timer.from = this.world.now;
      this.delay = { by: this.name, from: this.world.now, until: null, late: false };
      this.world.delays.push(this.delay);
    }
    this.world.note(
      this,
      "delay",
      `${this.name} delays its ACK by ${Math.round(ato / MS)} ms`,
      "RFC 1122 §4.2.3.2; tcp_send_delayed_ack",
    );
  }

  // tcp_delack_timer_handler
  delackTimer() {
    this.timer = null;
    if (this.interactive) {
      this.pingpong = 0; // inet_csk_exit_pingpong_mode
      this.ato = this.atoMin;
    } else {
      this.ato = Math.min(this.ato * 2, this.rto);
    }
    this.acknowledge("timer", "RFC 1122 §4.2.3.2; tcp_delack_timer_handler", "its delayed-ACK timer fired");
  }

  // recv(): the program takes all there is (tcp_cleanup_rbuf). Returns the bytes.
  read() {
    const bytes = this.unread;
    this.unread = 0;
    if (!bytes) return 0;
    this.world.note(this, "read", `${this.name} reads ${bytes} B`, "RFC 9293 §3.9.1.3 RECEIVE; tcp_recvmsg");
    if (this.scheduled && this.rcv_nxt - this.rcv_wup > this.rcv_mss) {
      this.acknowledge("second", "RFC 1122 §4.2.3.2; tcp_cleanup_rbuf", "more than one full segment was read");
    } else if (this.scheduled && (this.pushed2 || (this.pushed && !this.interactive))) {
      this.acknowledge("read", "tcp_cleanup_rbuf", this.pushed2 ? "two small segments were read" : "all was read");
    }
    return bytes;
  }

  setQuickAck() {
    // TCP_QUICKACK, which wears off: tcp_sock_set_quickack
    this.pingpong = 0;
    if (this.scheduled)
      this.acknowledge("socket", "tcp(7) TCP_QUICKACK; tcp_sock_set_quickack", "its program asked for it");
  }

  // ---- the probe timer

  // tcp_schedule_loss_probe; with nothing outstanding, the timer of tcp_check_probe_timer.
  armProbe() {
    this.world.cancel(this.probe);
    const only = this.outstanding.length < 2;
    const wait = this.outstanding.length ? 2 * this.srtt + (only ? TCP_RTO_MIN : TCP_TIMEOUT_MIN) : this.rto;
    this.probe = this.world.at(this.world.tick(Math.min(wait, this.rto)), () => this.sendProbe());
  }

  sendProbe() {
    this.probe = null;
    const last = this.outstanding.at(-1);
    if (last && this.probed > this.snd_una) return; // one probe per flight
    const left = this.write_seq - this.snd_nxt;
    if (left) {
      // the probe is new data, held or not
      this.release(last ? "probe" : "timeout", null);
      this.transmit(Math.min(left, this.full));
    } else if (last) {
      this.transmit(last.size, last);
    }
    this.probed = this.snd_nxt;
  }

  // What the page shows beside the ladder.
  state() {
    const { now } = this.world;
    return {
      snd_una: this.snd_una,
      snd_nxt: this.snd_nxt,
      snd_sml: this.snd_sml,
      unacked: this.snd_nxt - this.snd_una,
      queued: this.write_seq - this.snd_nxt,
      held: this.held ? { why: this.held.why, since: this.held.since } : null,
      rcv_nxt: this.rcv_nxt,
      owed: this.rcv_nxt - this.rcv_wup,
      timer: this.timer ? { from: this.timer.from, until: this.timer.time } : null,
      quick: this.quick,
      pingpong: this.pingpong,
      interactive: this.interactive,
      now,
    };
  }
}
