#include "comm/tcp/tcp_listener.h"

#include <cerrno>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace tessera {

TcpListener::TcpListener(const TcpAddress& address) {
  int problem = 0;
  for (const SystemAddress& system_address : listening_addresses(address)) {
    const int error = listen_at(system_address);
    if (error == 0) continue;
    problem = error;
    // Goes on: a name may have an IPv6 address on a machine without an IPv6 network.
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) {
      close_all();
      break;
    }
  }
  if (!descriptors_.empty()) return;
  throw Error(
      "cannot listen at {}: {}. The first rank listens there, so it must be an address of its "
      "machine and a port that nothing else has",
      address.text(), system_reason(problem));
}

/// Listens at one address. Returns the system's error, or 0.
int TcpListener::listen_at(const SystemAddress& address) {
  const int descriptor = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return errno;
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Without this, a listener at all IPv6 networks takes the port of the IPv4 networks too, which
  // have a listener of their own.
  if (address.family() == AF_INET6) {
    ::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  if (::bind(descriptor, address.get(), address.length) != 0 ||
      ::listen(descriptor, SOMAXCONN) != 0) {
    const int problem = errno;
    ::close(descriptor);
    return problem;
  }
  descriptors_.push_back(descriptor);
  return 0;
}

void TcpListener::close_all() {
  for (const int descriptor : descriptors_) ::close(descriptor);
  descriptors_.clear();
}

TcpListener::~TcpListener() { close_all(); }

uint16_t TcpListener::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(descriptors_.front(), reinterpret_cast<sockaddr*>(&own), &length);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

std::optional<TcpSocket> TcpListener::accept() {
  for (const int listening : descriptors_) {
    const int descriptor = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor >= 0) return TcpSocket(descriptor);
    const int problem = errno;
    if (problem == EMFILE || problem == ENFILE || problem == ENOBUFS || problem == ENOMEM) {
      throw Error(
          "cannot take one more connection of another rank: {}. Each rank has two here; raise the "
          "limit on open files (ulimit -n)",
          system_reason(problem));
    }
    // No connection waits at this address, or its other side is gone again.
  }
  return std::nullopt;
}

}  // namespace tessera
