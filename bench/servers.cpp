// Lock servers beside pawl: Redis and etcd, each started here on loopback with
// nothing kept on disk that outlives it, and stopped in the end.
//
// A client is a thread with a connection of its own; a round is a lock and its
// release, one round trip each. Free: keys that nobody else wants. Hot: all
// want the same one.
//
//   redis  SET key name NX PX 30000, then DEL. Whoever finds the key taken asks
//          again at once
//   etcd   its lock service (v3/lock over HTTP), which waits in line; one lease
//          of 60 s for each client
//
// The check: a counter per key, raised in two steps by whoever has the lock, is
// in the end what was granted. Debian: redis-server, etcd-server.

#include "bench/measure.hpp"
#include "test/support/child.hpp"
#include "test/support/free_port.hpp"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <netinet/tcp.h>

namespace bench {
namespace {

using namespace std::chrono_literals;
using pawl::testing::child;
using pawl::testing::free_port;

struct plan {
  std::vector<std::string> subjects{"redis", "etcd"};
  std::vector<std::size_t> clients{1, 10, 50};
  double seconds = 2;
};

/// A blocking connection to loopback.
class connection {
public:
  explicit connection(std::uint16_t port)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) {
      ::close(fd_);
      throw std::runtime_error("the server does not answer");
    }
    int yes = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }

  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  ~connection() {
    ::close(fd_);
  }

  void write(const std::string& x) const {
    if (::send(fd_, x.data(), x.size(), MSG_NOSIGNAL)
        != static_cast<ssize_t>(x.size()))
      throw std::runtime_error("the server hung up");
  }

  /// Up to and with `end`.
  std::string read_until(std::string_view end) {
    for (;;) {
      if (auto i = read_.find(end); i != std::string::npos)
        return take(i + end.size());
      more();
    }
  }

  std::string read(std::size_t size) {
    while (read_.size() < size)
      more();
    return take(size);
  }

private:
  std::string take(std::size_t size) {
    auto result = read_.substr(0, size);
    read_.erase(0, size);
    return result;
  }

  void more() {
    char some[4096];
    auto n = ::recv(fd_, some, sizeof(some), 0);
    if (n <= 0)
      throw std::runtime_error("the server hung up");
    read_.append(some, static_cast<std::size_t>(n));
  }

  int fd_;
  std::string read_;
};

// -- how each of them locks ---------------------------------------------------

class client {
public:
  virtual ~client() = default;
  virtual void lock(const std::string& key) = 0;
  virtual void unlock(const std::string& key) = 0;
};

class redis_client final : public client {
public:
  explicit redis_client(std::uint16_t port) : to_(port) {
    // nop
  }

  void lock(const std::string& key) override {
    for (;;) {
      to_.write("SET " + key + " me NX PX 30000\r\n");
      if (to_.read_until("\r\n") == "+OK\r\n")
        return;
    }
  }

  void unlock(const std::string& key) override {
    to_.write("DEL " + key + "\r\n");
    if (to_.read_until("\r\n") != ":1\r\n")
      throw std::runtime_error("a lock was gone");
  }

private:
  connection to_;
};

std::string base64(const std::string& x) {
  static constexpr char digits[]
    = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string result;
  for (std::size_t i = 0; i < x.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t j = 0; j < 3; ++j)
      bits = bits << 8
             | (i + j < x.size() ? static_cast<unsigned char>(x[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j)
      result += i + j > x.size() ? '=' : digits[bits >> (18 - 6 * j) & 63];
  }
  return result;
}

class etcd_client final : public client {
public:
  explicit etcd_client(std::uint16_t port) : to_(port) {
    auto granted = post("lease/grant", {{"TTL", "60"}});
    lease_ = granted.at("ID").get<std::string>();
  }

  void lock(const std::string& key) override {
    key_ = post("lock/lock", {{"name", base64(key)}, {"lease", lease_}})
             .at("key")
             .get<std::string>();
  }

  void unlock(const std::string&) override {
    post("lock/unlock", {{"key", key_}});
  }

private:
  json post(const std::string& what, const json& body) {
    auto text = body.dump();
    to_.write(fmt::format("POST /v3/{} HTTP/1.1\r\nHost: localhost\r\n"
                          "Content-Type: application/json\r\n"
                          "Content-Length: {}\r\n\r\n{}",
                          what, text.size(), text));
    auto head = to_.read_until("\r\n\r\n");
    auto at = head.find("Content-Length: ");
    if (!head.starts_with("HTTP/1.1 200") || at == std::string::npos)
      throw std::runtime_error("etcd: " + head.substr(0, head.find('\r')));
    return json::parse(to_.read(std::stoul(head.substr(at + 16))));
  }

  connection to_;
  std::string lease_;
  std::string key_;
};

// -- one run ------------------------------------------------------------------

/// A directory that goes with its object, in memory if there is such a place:
/// no peer is to wait for a disk.
class directory {
public:
  directory() {
    path_
      = (std::filesystem::temp_directory_path() / "pawl-peer-XXXXXX").string();
    if (::mkdtemp(path_.data()) == nullptr)
      throw std::runtime_error("no directory for a peer");
  }

  directory(const directory&) = delete;
  directory& operator=(const directory&) = delete;

  ~directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const noexcept {
    return path_;
  }

private:
  std::string path_;
};

bool installed(const std::string& program) {
  std::string path = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
  for (std::size_t i = 0; i <= path.size();) {
    auto end = std::min(path.find(':', i), path.size());
    if (::access((path.substr(i, end - i) + "/" + program).c_str(), X_OK) == 0)
      return true;
    i = end + 1;
  }
  return false;
}

std::vector<std::string> command(const std::string& subject, std::uint16_t port,
                                 const directory& where) {
  if (subject == "redis")
    return {
      "redis-server", "--port", std::to_string(port), "--bind", "127.0.0.1",
      "--save",       "",       "--appendonly",       "no",     "--dir",
      where.path()};
  auto url = fmt::format("http://127.0.0.1:{}", port);
  auto peer = fmt::format("http://127.0.0.1:{}", free_port());
  return {"etcd",
          "--data-dir",
          where.path() + "/data",
          "--listen-client-urls",
          url,
          "--advertise-client-urls",
          url,
          "--listen-peer-urls",
          peer,
          "--initial-advertise-peer-urls",
          peer,
          "--initial-cluster",
          "default=" + peer,
          "--log-level",
          "error"};
}

std::unique_ptr<client> connect(const std::string& subject,
                                std::uint16_t port) {
  if (subject == "redis")
    return std::make_unique<redis_client>(port);
  return std::make_unique<etcd_client>(port);
}

void wait_until_up(const std::string& subject, std::uint16_t port) {
  for (auto end = steady::now() + 20s;;)
    try {
      auto x = connect(subject, port);
      x->lock("first");
      x->unlock("first");
      return;
    } catch (const std::runtime_error&) {
      if (steady::now() > end)
        throw;
      std::this_thread::sleep_for(20ms);
    }
}

void measure(const std::string& subject, std::uint16_t port, bool hot,
             std::size_t clients, const plan& what, report& out) {
  struct alignas(64) counter {
    std::atomic<std::uint64_t> writes{0};
  };
  std::vector<counter> guarded(clients);
  std::vector<counter> granted(clients);
  std::vector<histogram> rounds(clients);
  std::atomic<bool> enough{false};
  std::atomic<bool> good{true};
  auto work = [&](std::size_t i) {
    try {
      auto me = connect(subject, port);
      auto which = hot ? 0 : i;
      for (std::uint64_t n = 0; !enough; ++n) {
        auto key = hot ? std::string{"hot"} : fmt::format("free/{}/{}", i, n);
        auto since = now_ns();
        me->lock(key);
        auto& x = guarded[which].writes;
        x.store(x.load(std::memory_order_relaxed) + 1,
                std::memory_order_relaxed);
        me->unlock(key);
        rounds[i].record(now_ns() - since);
        granted[i].writes.store(n + 1, std::memory_order_relaxed);
      }
    } catch (const std::exception& why) {
      fmt::print("     client {}: {}\n", i, why.what());
      good = false;
    }
  };
  auto since = now_ns();
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < clients; ++i)
    threads.emplace_back(work, i);
  std::this_thread::sleep_for(std::chrono::duration<double>(what.seconds));
  // On a busy machine a short time may be too short for a single round.
  auto none = [&] {
    return std::all_of(granted.begin(), granted.end(),
                       [](const auto& x) { return x.writes == 0; });
  };
  while (none() && good && seconds_since(since) < what.seconds + 10)
    std::this_thread::sleep_for(10ms);
  enough = true;
  for (auto& x : threads)
    x.join();
  auto elapsed = seconds_since(since);
  std::uint64_t all = 0;
  std::uint64_t fewest = ~std::uint64_t{0};
  std::uint64_t most = 0;
  std::uint64_t written = 0;
  histogram times;
  for (std::size_t i = 0; i < clients; ++i) {
    auto mine = granted[i].writes.load();
    all += mine;
    fewest = std::min(fewest, mine);
    most = std::max(most, mine);
    written += guarded[i].writes.load();
    times.add(rounds[i]);
  }
  json figures{{"per_second", static_cast<double>(all) / elapsed},
               {"fairness", most == 0 ? 0.0
                                      : static_cast<double>(fewest)
                                          / static_cast<double>(most)}};
  figures.update(times.figures());
  out.row(subject, {{"keys", hot ? "hot" : "free"}, {"clients", clients}},
          std::move(figures), good && all != 0 && written == all,
          subject == "redis" ? "fairness, waiting (it polls), tokens, holder "
                               "death before the time-out, several nodes"
                             : "shared locks");
}

void run(const std::string& subject, const plan& what, report& out) {
  auto program = subject == "redis" ? "redis-server" : "etcd";
  if (!installed(program)) {
    out.absent(subject, fmt::format("no {} ({}-server)", program, subject));
    return;
  }
  directory where;
  auto port = free_port();
  try {
    child server{command(subject, port, where)};
    wait_until_up(subject, port);
    for (auto hot : {false, true})
      for (auto clients : what.clients)
        measure(subject, port, hot, clients, what, out);
  } catch (const std::exception& why) {
    out.row(subject, json::object(), {{"trouble", why.what()}}, false);
  }
}

} // namespace
} // namespace bench

int main(int argc, char** argv) {
  CLI::App app{"Lock servers beside pawl: Redis and etcd"};
  bench::plan what;
  auto tiny = false;
  bench::report out{"servers"};
  app.add_option("--subjects", what.subjects, "of: redis, etcd")
    ->delimiter(',')
    ->check(CLI::IsMember({"redis", "etcd"}));
  app.add_option("--clients", what.clients, "threads, one after the other")
    ->delimiter(',');
  app.add_option("--seconds", what.seconds, "measured, for each row");
  app.add_flag("--tiny", tiny, "only that it works");
  out.options(app);
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGPIPE, SIG_IGN);
  if (tiny) {
    what.clients = {2};
    what.seconds = 0.2;
  }
  for (const auto& x : what.subjects)
    bench::run(x, what, out);
  return out.status();
}
