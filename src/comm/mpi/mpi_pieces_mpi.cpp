#include "comm/mpi/mpi_pieces_mpi.h"

#include <algorithm>
#include <vector>

#include "comm/mpi/mpi_call_mpi.h"

namespace tessera {
namespace {

constexpr int kPiece = 0;  // the tag of MPI's messages; MpiPosts has another on this communicator

}  // namespace

void exchange_pieces(MpiGroup& group, const Fingerprint& mark, std::span<const MpiPiece> sends,
                     std::span<const MpiPiece> receives) {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;
  for (const MpiPiece& piece : receives) {
    begin_receives(piece.memory, piece.bytes, piece.peer, kPiece, group.data(), requests);
    if (piece.peer != group.position()) peers.push_back(piece.peer);
  }
  for (const MpiPiece& piece : sends) {
    begin_sends(piece.memory, piece.bytes, piece.peer, kPiece, group.data(), requests);
    const bool is_known = std::ranges::find(peers, piece.peer) != peers.end();
    if (piece.peer != group.position() && !is_known) peers.push_back(piece.peer);
  }
  group.wait(mark, requests, peers, Backoff::Between::yields);
}

}  // namespace tessera
