"""The links to the phones and boards of phones.py: bytes are counted, and a link is cut, stalled and slowed at will."""
import socket
import threading
import time


class Link:
    """A TCP proxy to a port of this machine; `up_bytes` went to the device, `down_bytes` came from it."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.up_bytes = self.down_bytes = 0
        self._lock = threading.Lock()
        self._pairs = set()
        self._flowing = threading.Event()
        self._flowing.set()
        self._up = threading.Event()
        self._up.set()
        self._is_closed = False
        self._rate = None
        self._cut_at = None
        self.n_cuts = 0
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        # A port that was asked for by its number stays with the socket while that does not listen.
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=16)
        threading.Thread(target=self._accept, daemon=True).start()

    def total_bytes(self):
        return self.up_bytes + self.down_bytes

    def cut(self):
        """All connections end at once, as when the cable is drawn; new ones are taken, unless the link is down."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
            self.n_cuts += 1
        for pair in pairs:
            for end in pair:
                try:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0") # a reset, not an end
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def down(self):
        """Cut, and new connections are refused until up(): adb waits 10 s for one that is taken and then ends."""
        with self._lock:
            if self._up.is_set() and not self._is_closed:
                self._up.clear()
                self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()

    def up(self):
        with self._lock:
            if not self._up.is_set() and not self._is_closed:
                self._listener.listen(16)
                self._up.set()

    def cut_after(self, n_bytes):
        """Cut once so many more bytes, of both directions, have passed; None: not any more."""
        with self._lock:
            self._cut_at = self.total_bytes() + n_bytes if n_bytes is not None else None

    def stall(self):
        """Connections stay, and no byte passes until flow()."""
        self._flowing.clear()

    def flow(self):
        self._flowing.set()

    def limit(self, bytes_per_second):
        """None: no limit."""
        self._rate = bytes_per_second

    def close(self):
        self.flow()
        self.down()
        with self._lock:
            self._is_closed = True
            self._up.set() # who waits for it ends
        self._listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                self._up.wait()
                if self._is_closed:
                    return
                continue
            try:
                if not self._up.is_set():
                    raise ConnectionError
                far = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.add((near, far))
            threading.Thread(target=self._pass, args=(near, far, near, far), daemon=True).start()
            threading.Thread(target=self._pass, args=(near, far, far, near), daemon=True).start()

    def _pass(self, near, far, source, sink):
        try:
            while data := source.recv(1 << 16 if self._rate is None else max(1024, min(1 << 16, self._rate // 20))):
                self._flowing.wait()
                if self._rate is not None:
                    time.sleep(len(data) / self._rate)
                data, is_cut = self._count(data, sink is far)
                sink.sendall(data)
                if is_cut:
                    self.cut()
                    break
        except OSError:
            pass
        with self._lock:
            self._pairs.discard((near, far))
        for end in (near, far):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        source.close() # each direction closes what it reads from

    def _count(self, data, is_upwards):
        """Counts the bytes; fewer of them, and True, when the link is to be cut among them."""
        with self._lock:
            is_cut = self._cut_at is not None and self.total_bytes() + len(data) >= self._cut_at
            if is_cut:
                data = data[:max(0, self._cut_at - self.total_bytes())]
                self._cut_at = None
            if is_upwards:
                self.up_bytes += len(data)
            else:
                self.down_bytes += len(data)
        return data, is_cut


class Disturbance:
    """One loss of the link at a random point of a capture, for a moment: at a byte (`at` = "byte", of n), at a time (of n
    seconds) or at an acknowledged sample (of n), where the agent waits for it. `said` tells which; use as a context around
    the capture. Only a time may come after the end: has_struck tells."""

    def __init__(self, phone, dice, at, n):
        self.phone = phone
        self.point = dice.uniform(0, n) if at == "time" else dice.randrange(1, int(n))
        self.down_s = dice.choice((0, 0, dice.uniform(0, 3)))
        self.at = at
        self.said = f"link lost at {at} {self.point:.6g} of {n:.6g} for {self.down_s:.1f} s"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self.has_struck = False

    def __enter__(self):
        self._begun_s = time.monotonic()
        self._n_cuts = self.phone.link.n_cuts
        if self.at == "byte":
            self.phone.link.cut_after(self.point)
        elif self.at == "sample":
            self.phone.stop_point.ask(f"acknowledged {self.point}")
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        self.phone.stop_point.withdraw()
        self.phone.link.cut_after(None)
        self.phone.link.up()

    def _is_due(self):
        if self.at == "byte":
            return self.phone.link.n_cuts > self._n_cuts
        if self.at == "time":
            return time.monotonic() - self._begun_s >= self.point
        return self.phone.has_stopped()

    def _wait(self):
        while not self._is_due():
            if self._done.wait(0.002 if self.at == "time" else 0.02):
                return
        self.has_struck = True
        self.phone.link.down()
        self.phone.thaw()
        self._done.wait(self.down_s)
        self.phone.link.up()
