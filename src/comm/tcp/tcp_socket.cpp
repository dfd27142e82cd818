#include "comm/tcp/tcp_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/strict_json.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook{250};
constexpr std::chrono::milliseconds kTryAgain{100};
constexpr std::chrono::milliseconds kConnectPatience{5000};  // for one try

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

std::string reason(int error) { return std::generic_category().message(error); }

/// The numbers of a host and port, or the reason why there are none.
int look_up(const char* host, uint16_t port, int flags, Addresses& addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (problem == 0) addresses.reset(found);
  return problem;
}

[[noreturn]] void throw_unknown(const TcpAddress& address, int problem) {
  throw Error("{} is no address that this machine knows: {}", address.text(),
              ::gai_strerror(problem));
}

void set_option(int descriptor, int level, int name, int value) {
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

/// Small letters go at once. A machine that is lost is found out within half a minute, if nothing
/// is on its way to it.
void set_options(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool wait_for(int descriptor, short events, std::chrono::milliseconds patience) {
  pollfd waited{.fd = descriptor, .events = events, .revents = 0};
  return ::poll(&waited, 1, static_cast<int>(patience.count())) > 0;
}

/// Whether a connection is one to itself: a port that nobody listens at may be the one that the
/// system has given to this end.
bool is_own_end(int descriptor) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_length = sizeof own;
  socklen_t other_length = sizeof other;
  return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&own), &own_length) == 0 &&
         ::getpeername(descriptor, reinterpret_cast<sockaddr*>(&other), &other_length) == 0 &&
         own_length == other_length && std::memcmp(&own, &other, own_length) == 0;
}

/// Connects to one of these within `patience`. Returns the system's error, or 0.
int connect_to(const addrinfo& address, std::chrono::milliseconds patience, int& descriptor) {
  descriptor = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        address.ai_protocol);
  if (descriptor < 0) return errno;
  int problem = ::connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (problem == EINPROGRESS) {
    socklen_t length = sizeof problem;
    if (!wait_for(descriptor, POLLOUT, patience)) {
      problem = ETIMEDOUT;
    } else if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &problem, &length) != 0) {
      problem = errno;
    }
  }
  if (problem == 0 && is_own_end(descriptor)) problem = ECONNREFUSED;
  if (problem != 0) ::close(descriptor);
  return problem;
}

/// The bytes of an address's number.
std::string number_of(const sockaddr* address) {
  const auto bytes = [](const auto& number) {
    return std::string(reinterpret_cast<const char*>(&number), sizeof number);
  };
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    return bytes(reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  }
  if (address->sa_family == AF_INET6) {
    const in6_addr& number = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&number)) {
      return std::string(reinterpret_cast<const char*>(&number) + 12, 4);
    }
    return bytes(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  return "";
}

/// The network of this machine that has the address of a socket's own end.
std::string network_of(int descriptor) {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(descriptor, address, &length) != 0) return "";
  const std::string number = number_of(address);
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> networks(found, &::freeifaddrs);
  for (const ifaddrs* at = networks.get(); at != nullptr; at = at->ifa_next) {
    if (!number.empty() && number_of(at->ifa_addr) == number) return at->ifa_name;
  }
  return "";
}

/// Whether one of these is an address of this machine: then it can be bound.
bool is_of_this_machine(const addrinfo* addresses) {
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    const int descriptor = ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    set_option(descriptor, SOL_SOCKET, SO_REUSEADDR, 1);
    const bool bound = ::bind(descriptor, at->ai_addr, at->ai_addrlen) == 0 || errno == EADDRINUSE;
    ::close(descriptor);
    if (bound) return true;
  }
  return false;
}

}  // namespace

std::string TcpAddress::text() const {
  const bool number = host.find(':') != std::string::npos;
  return number ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

TcpAddress parse_tcp_address(std::string_view variable, std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    host = "";  // without brackets it is not clear where the port begins
  }
  int number = 0;
  const auto [end, problem] = std::from_chars(port.begin(), port.end(), number);
  if (host.empty() || problem != std::errc() || end != port.end() || number < 1 ||
      number > UINT16_MAX) {
    throw Error(
        "{} is {}, expected the first rank's machine and a port: node0:29500, 10.0.0.1:29500 or "
        "[fd00::1]:29500",
        variable, in_quotes(text));
  }
  return {std::string(host), static_cast<uint16_t>(number)};
}

TcpSocket::TcpSocket(TcpSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

TcpSocket::~TcpSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TcpSocket TcpSocket::connect(const TcpAddress& address, std::chrono::milliseconds patience,
                             const Look& look) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    Addresses addresses(nullptr, &::freeaddrinfo);
    const int unknown = look_up(address.host.c_str(), address.port, 0, addresses);
    std::string why = unknown == 0 ? "" : ::gai_strerror(unknown);
    if (unknown != 0 && unknown != EAI_AGAIN) throw_unknown(address, unknown);
    for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      int descriptor = -1;
      const int problem =
          connect_to(*at, std::clamp(left, kTryAgain, kConnectPatience), descriptor);
      if (problem == 0) {
        set_options(descriptor);
        return TcpSocket(descriptor);
      }
      why = reason(problem);
    }
    if (std::chrono::steady_clock::now() > end) {
      throw Error("{} does not answer after {:g} s: {}", address.text(),
                  std::chrono::duration<double>(patience).count(), why);
    }
    if (look) look();
    std::this_thread::sleep_for(kTryAgain);
  }
}

void TcpSocket::watch_machine() {
  constexpr int kMilliseconds = 30'000;
  set_option(descriptor_, IPPROTO_TCP, TCP_USER_TIMEOUT, kMilliseconds);
}

void TcpSocket::send(std::span<const std::byte> bytes, const Look& look) {
  while (!bytes.empty()) {
    const ssize_t sent =
        ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(descriptor_, POLLOUT, kLook) && look) look();
    } else if (errno != EINTR) {
      throw ConnectionLost("the connection is lost: {}", reason(errno));
    }
  }
}

void TcpSocket::try_send(std::span<const std::byte> bytes) {
  if (!wait_for(descriptor_, POLLOUT, std::chrono::milliseconds(0))) return;
  ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpSocket::receive(std::span<std::byte> bytes, const Look& look) {
  while (!bytes.empty()) {
    const ssize_t received = ::recv(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<size_t>(received));
    } else if (received == 0) {
      throw ConnectionLost("the other side has closed the connection");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(descriptor_, POLLIN, kLook);
      if (look) look();
    } else if (errno != EINTR) {
      throw ConnectionLost("the connection is lost: {}", reason(errno));
    }
  }
}

bool TcpSocket::is_closed() const {
  std::byte next{};
  const ssize_t received = ::recv(descriptor_, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return received == 0 || (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
}

void TcpSocket::shut_down() { ::shutdown(descriptor_, SHUT_RDWR); }

std::string TcpSocket::network() const { return network_of(descriptor_); }

TcpListener::TcpListener(const TcpAddress& address) {
  Addresses named(nullptr, &::freeaddrinfo);
  if (const int problem = look_up(address.host.c_str(), address.port, 0, named); problem != 0) {
    throw_unknown(address, problem);
  }
  Addresses number(nullptr, &::freeaddrinfo);
  if (look_up(address.host.c_str(), address.port, AI_NUMERICHOST, number) == 0) {
    listen_at(*number->ai_addr, number->ai_addrlen, address);
    return;
  }
  if (!is_of_this_machine(named.get())) {
    throw Error(
        "cannot listen at {}: it is the name of another machine. The first rank listens there, so "
        "start it on that machine, or name this one",
        address.text());
  }
  // A machine's own name may stand for its loopback there (127.0.1.1), so it is all of the
  // machine's addresses.
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(address.port);
  sockaddr_in any_4{};
  any_4.sin_family = AF_INET;
  any_4.sin_port = htons(address.port);
  try {
    listen_at(reinterpret_cast<const sockaddr&>(any), sizeof any, address);
  } catch (const Error&) {  // a machine without version 6
    listen_at(reinterpret_cast<const sockaddr&>(any_4), sizeof any_4, address);
  }
}

void TcpListener::listen_at(const sockaddr& place, unsigned length, const TcpAddress& address) {
  descriptor_ = ::socket(place.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor_ < 0) throw Error("cannot listen at {}: {}", address.text(), reason(errno));
  set_option(descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (place.sa_family == AF_INET6) set_option(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(descriptor_, &place, length) != 0 || ::listen(descriptor_, SOMAXCONN) != 0) {
    const int problem = errno;
    ::close(descriptor_);
    throw Error(
        "cannot listen at {}: {}. The first rank listens there, so it must be an address of its "
        "machine and a port that nothing else has",
        address.text(), reason(problem));
  }
}

TcpListener::~TcpListener() { ::close(descriptor_); }

uint16_t TcpListener::port() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&own), &length);
  return ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(own).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(own).sin_port);
}

std::optional<TcpSocket> TcpListener::accept(std::chrono::milliseconds patience) {
  if (!wait_for(descriptor_, POLLIN, patience)) return std::nullopt;
  const int descriptor = ::accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC);
  if (descriptor < 0) {
    const int problem = errno;
    if (problem == EMFILE || problem == ENFILE || problem == ENOBUFS || problem == ENOMEM) {
      throw Error(
          "cannot take one more connection of another rank: {}. Raise the limit on open "
          "files (ulimit -n)",
          reason(problem));
    }
    return std::nullopt;  // who connected is gone again
  }
  set_options(descriptor);
  return TcpSocket(descriptor);
}

}  // namespace tessera
