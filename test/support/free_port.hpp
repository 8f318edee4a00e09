// free_port: where a test or a bench lets a process of its own listen.

#pragma once

#include <cstdint>
#include <set>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pawl::testing {

/// A port of loopback that nobody listens at now; another one each time.
inline std::uint16_t free_port() {
  static std::set<std::uint16_t> given;
  for (;;) {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    (void) ::bind(fd, reinterpret_cast<sockaddr*>(&at), size);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size);
    ::close(fd);
    if (given.insert(ntohs(at.sin_port)).second)
      return ntohs(at.sin_port);
  }
}

} // namespace pawl::testing
