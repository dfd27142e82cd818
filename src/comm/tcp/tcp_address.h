#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

namespace tessera {

/// The address at which ranks meet: a port of a machine, which is given by its name or by the IP
/// address of one of its networks.
struct TcpAddress {
  std::string host;
  uint16_t port = 0;

  std::string text() const;
};

/// Reads "node0:29500", "10.0.0.1:29500" or "[fd00::1]:29500". Throws Error that names the variable
/// if the text is none of these.
TcpAddress parse_tcp_address(std::string_view variable, std::string_view text);

/// An IP address with a port, in the form that system calls take.
struct SystemAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  int family() const { return bytes.ss_family; }
  bool is_loopback() const;
};

/// Returns the IP addresses of a name. Sets `problem` to the error of getaddrinfo(), or to 0.
std::vector<SystemAddress> look_up(const TcpAddress& address, int& problem);

/// Throws Error for an address that look_up() does not know.
[[noreturn]] void throw_unknown(const TcpAddress& address, int problem);

/// Returns the IP addresses at which the first rank listens: those of the name. There is one
/// exception. Debian writes a machine's own name to /etc/hosts as an address of its loopback
/// (127.0.1.1), which no other machine reaches. Such a name stands for all networks of the machine.
/// Throws Error if the name is unknown.
std::vector<SystemAddress> listening_addresses(const TcpAddress& address);

/// Returns whether all of listening_addresses() are of the loopback, which no other machine
/// reaches. Returns false for an unknown name.
bool is_loopback(const TcpAddress& address);

}  // namespace tessera
