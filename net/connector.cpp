#include "pawl/net/connector.hpp"

#include <caf/io/middleman_actor_impl.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pawl {

namespace {

using clock = std::chrono::steady_clock;

/// How often a connect looks whether it is to stop.
constexpr std::chrono::milliseconds slice{50};

caf::error failed(const std::string& why) {
  return caf::make_error(caf::sec::cannot_connect_to_node, why);
}

/// A socket that is closed unless it is handed on.
class socket_holder {
public:
  explicit socket_holder(int fd) : fd_(fd) {
    // nop
  }

  socket_holder(const socket_holder&) = delete;

  socket_holder& operator=(const socket_holder&) = delete;

  ~socket_holder() {
    if (fd_ >= 0)
      ::close(fd_);
  }

  [[nodiscard]] int get() const noexcept {
    return fd_;
  }

  int release() noexcept {
    return std::exchange(fd_, -1);
  }

private:
  int fd_;
};

/// The broker of CAF's own protocol. Its name is a string or an atom; which of
/// the two, the compiler finds out.
template <class Middleman, std::size_t N>
caf::actor basp_of(Middleman& mm, const char (&name)[N]) {
  using namespace caf;
  using broker = io::basp_broker;
  if constexpr (requires { mm.template named_broker<broker>(std::string{}); })
    return mm.template named_broker<broker>(std::string{name});
  else
    return mm.template named_broker<broker>(atom(name));
}

class connector : public caf::io::middleman_actor_impl {
public:
  connector(caf::actor_config& cfg, caf::actor broker,
            std::chrono::milliseconds patience, stop_flag stop)
    : caf::io::middleman_actor_impl(cfg, std::move(broker)),
      patience_(patience), stop_(std::move(stop)) {
    // nop
  }

  const char* name() const override {
    return "pawl.connector";
  }

protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& host,
                                             std::uint16_t port) override {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (auto code = getaddrinfo(host.c_str(), std::to_string(port).c_str(),
                                &hints, &found);
        code != 0)
      return failed(gai_strerror(code));
    std::unique_ptr<addrinfo, void (*)(addrinfo*)> guard{found, freeaddrinfo};
    auto until = clock::now() + patience_;
    auto error = ENOENT;
    for (auto* i = found; i != nullptr; i = i->ai_next) {
      socket_holder fd{::socket(
        i->ai_family, i->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
      error = fd.get() < 0 ? errno : connect(fd.get(), *i, until);
      if (error == 0)
        return system().middleman().backend().new_scribe(fd.release());
    }
    return failed(std::strerror(error));
  }

private:
  /// 0, or the error number.
  int connect(int fd, const addrinfo& to, clock::time_point until) {
    if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0)
      return 0;
    if (errno != EINPROGRESS)
      return errno;
    while (!stop_->load() && clock::now() < until) {
      pollfd waits{fd, POLLOUT, 0};
      auto n = ::poll(&waits, 1, static_cast<int>(slice.count()));
      if (n < 0 && errno != EINTR)
        return errno;
      if (n > 0) {
        int result = 0;
        socklen_t size = sizeof(result);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &size) != 0)
          return errno;
        return result;
      }
    }
    return ETIMEDOUT;
  }

  std::chrono::milliseconds patience_;
  stop_flag stop_;
};

} // namespace

caf::io::middleman_actor make_connector(caf::actor_system& sys,
                                        std::chrono::milliseconds patience,
                                        stop_flag stop) {
  return sys.spawn<connector, caf::detached + caf::hidden>(
    basp_of(sys.middleman(), "BASP"), patience, std::move(stop));
}

} // namespace pawl
