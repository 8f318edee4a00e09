#include "port_check.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace scada {

std::optional<std::string> why_not_free(const std::string& host,
                                        std::uint16_t port) {
  auto refused = [&](const char* why) {
    return fmt::format("port {} of {} cannot be used: {}", port, host, why);
  };
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    return refused("not an IPv4 address");
  auto fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return refused(std::strerror(errno));
  // As the servers do: what an earlier run left in TIME_WAIT is no obstacle.
  int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto free
    = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0
      && listen(fd, 1) == 0;
  auto why = errno;
  close(fd);
  if (free)
    return std::nullopt;
  return refused(why == EADDRINUSE ? "it is in use" : std::strerror(why));
}

} // namespace scada
