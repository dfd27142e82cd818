#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace tessera {

/// The address at which ranks meet: a machine's name, or the address of one of its networks, and a
/// port.
struct TcpAddress {
  std::string host;
  uint16_t port = 0;

  std::string text() const;
};

/// Reads "node0:29500", "10.0.0.1:29500" or "[fd00::1]:29500". Throws Error that names the variable
/// if the text is none of these.
TcpAddress parse_tcp_address(std::string_view variable, std::string_view text);

/// The address of a network with a port, in the form that system calls take.
struct SystemAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  int family() const { return bytes.ss_family; }
  bool is_loopback() const;
};

/// Returns the addresses that a name stands for. If there are none, `problem` is the reason: an
/// error of getaddrinfo().
std::vector<SystemAddress> look_up(const TcpAddress& address, int& problem);

/// Throws Error for an address that look_up() does not know.
[[noreturn]] void throw_unknown(const TcpAddress& address, int problem);

/// Returns the addresses at which the first rank listens: those that the name stands for. Debian
/// writes a machine's own name to /etc/hosts as an address of its loopback (127.0.1.1), which no
/// other machine reaches; such a name stands for all networks of the machine. Throws Error if the
/// name is unknown.
std::vector<SystemAddress> listening_addresses(const TcpAddress& address);

/// Returns whether no other machine reaches what listens at listening_addresses(); false for a name
/// that is not known now.
bool is_loopback(const TcpAddress& address);

}  // namespace tessera
