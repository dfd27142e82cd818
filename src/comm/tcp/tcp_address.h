#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace tessera {

/// The address at which ranks meet: a machine and a port.
struct TcpAddress {
  std::string host;  ///< the machine's name, or the IP address of one of its networks
  uint16_t port = 0;

  std::string text() const;
};

/// Reads "node0:29500", "10.0.0.1:29500" or "[fd00::1]:29500". Throws Error, with the name of the
/// environment variable that has the text, if the text has no such form.
TcpAddress parse_tcp_address(std::string_view variable, std::string_view text);

/// An IP address with a port, in the form that system calls take.
struct SystemAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  int family() const { return bytes.ss_family; }
  bool is_loopback() const;
  uint16_t port() const;
  void set_port(uint16_t port);
};

/// Returns the IP addresses of the host. Sets `problem` to the error of getaddrinfo(), or to 0.
std::vector<SystemAddress> look_up(const TcpAddress& address, int& problem);

/// Throws Error for a host that look_up() does not know, with the reason `problem`.
[[noreturn]] void throw_unknown(const TcpAddress& address, int problem);

/// Returns the addresses of all networks of this machine, with the port. Other machines may reach
/// the first ones; those of the loopback come last.
std::vector<TcpAddress> own_addresses(uint16_t port);

/// Returns the IP addresses at which the first rank listens: those of the host. An empty host
/// stands for all networks of the machine. If the host is this
/// machine's own name and stands for its loopback alone, it stands for all networks too. The reason
/// is that Debian writes a machine's name to /etc/hosts as 127.0.1.1, which no other machine
/// reaches. Throws Error if the host is unknown.
std::vector<SystemAddress> listening_addresses(const TcpAddress& address);

/// Returns whether no other machine reaches listening_addresses(), because all are of the loopback.
/// Returns false for an unknown host.
bool is_loopback(const TcpAddress& address);

}  // namespace tessera
