#include "comm/mpi/mpi_transport_mpi.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/call_errors.h"
#include "comm/mpi/mpi_call_mpi.h"
#include "comm/mpi/piece_cursor.h"
#include "comm/mpi/staging.h"
#include "comm/reduce.h"
#include "comm/wire_bytes.h"

namespace tessera {
namespace {

/// MPI 3 counts bytes in int. What is longer goes in several messages.
constexpr int64_t kMostMessageBytes = int64_t{1} << 30;

/// What goes before each message: what its sender calls it.
struct MessageHead {
  uint64_t hash = 0;
  std::array<char, 504> text{};
};

MessageHead head_of(const Fingerprint& mark) {
  MessageHead head{.hash = mark.hash()};
  const std::string text = mark.text();
  std::memcpy(head.text.data(), text.data(), std::min(text.size(), head.text.size() - 1));
  return head;
}

/// Counts and places of blocks of bytes, one after the other or not, as MPI takes them.
struct Blocks {
  explicit Blocks(size_t ranks) : counts(ranks), places(ranks) {}

  void set(size_t position, int64_t count, int64_t place) {
    counts[position] = static_cast<int>(count);
    places[position] = static_cast<int>(place);
  }

  std::vector<int> counts;
  std::vector<int> places;
};

/// A message without a head.
struct Piece {
  int peer;
  std::byte* memory;
  int64_t bytes;
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(MpiGroup& group) : group_(group) {}

  void all_gather(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                  const Tensor& to) override {
    group_.call(mark, [&] {
      group_.meet(mark, &layout);
      if (can_go_to_its_place(layout, to)) {
        gather_in_place(layout, from, to);
      } else {
        gather_in_rounds(layout, from, to);
      }
      received((layout.elements() - layout.elements(position())) * dtype_size(to.dtype()));
    });
  }

  void reduce_scatter(const Fingerprint& mark, const PieceLayout& layout, const Tensor& from,
                      const Tensor& to) override {
    group_.call(mark, [&] {
      group_.meet(mark, &layout);
      const int64_t size = dtype_size(to.dtype());
      std::vector<PieceCursor> cursors;
      for (int rank = 0; rank < ranks(); ++rank) cursors.emplace_back(layout, rank, size);
      reduce_in_rounds(
          mark, to, [&](int rank) { return layout.elements(rank); },
          [&](int rank, int64_t /*begin*/, int64_t elements, std::byte* staging) {
            cursors[static_cast<size_t>(rank)].gather(from.raw(), elements, staging);
          });
      received((ranks() - 1) * to.bytes());
    });
  }

  void all_reduce(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    group_.call(mark, [&] {
      group_.meet(mark);
      const int64_t size = dtype_size(to.dtype());
      const auto begin_of = [&](int rank) { return slice_begin(to.elements(), ranks(), rank); };
      const int64_t own_begin = begin_of(position());
      const int64_t own = begin_of(position() + 1) - own_begin;
      reduce_in_rounds(
          mark, to.reshape({to.elements()}).slice(own_begin, own_begin + own),
          [&](int rank) { return begin_of(rank + 1) - begin_of(rank); },
          [&](int rank, int64_t begin, int64_t elements, std::byte* staging) {
            std::memcpy(staging, from.raw() + (begin_of(rank) + begin) * size,
                        static_cast<size_t>(elements * size));
          });
      std::vector<Piece> slices;
      for (int rank = 0; rank < ranks(); ++rank) {
        slices.push_back(
            {rank, to.raw() + begin_of(rank) * size, (begin_of(rank + 1) - begin_of(rank)) * size});
      }
      gather_slices(slices, to);
      received(((ranks() - 1) * own + to.elements() - own) * size);
    });
  }

  void all_to_all(const Fingerprint& mark, const Tensor& from, const Tensor& to) override {
    group_.call(mark, [&] {
      group_.meet(mark);
      const int64_t block = to.bytes() / ranks();
      if (to.bytes() <= INT_MAX) {
        check_mpi(MPI_Alltoall(from.raw(), static_cast<int>(block), MPI_BYTE, to.raw(),
                               static_cast<int>(block), MPI_BYTE, group_.data()),
                  "MPI_Alltoall");
      } else {
        std::vector<Piece> sends;
        std::vector<Piece> receives;
        for (int rank = 0; rank < ranks(); ++rank) {
          sends.push_back({rank, from.raw() + rank * block, block});
          receives.push_back({rank, to.raw() + rank * block, block});
        }
        exchange_pieces(mark, sends, receives);
      }
      received(to.bytes() - block);
    });
  }

  void all_to_all_rows(const Fingerprint& mark, const Tensor& from, std::span<const int64_t> sent,
                       const Tensor& to, std::span<const int64_t> come) override {
    group_.call(mark, [&] {
      group_.meet(mark);
      group_.compare_rows(mark, sent, come);
      const int64_t row = to.shape().with_dim(0, 1).elements() * dtype_size(to.dtype());
      if (from.bytes() <= INT_MAX && to.bytes() <= INT_MAX) {
        const Blocks out = rows_of(sent, row);
        const Blocks in = rows_of(come, row);
        check_mpi(
            MPI_Alltoallv(from.raw(), out.counts.data(), out.places.data(), MPI_BYTE, to.raw(),
                          in.counts.data(), in.places.data(), MPI_BYTE, group_.data()),
            "MPI_Alltoallv");
      } else {
        exchange_pieces(mark, pieces_of_rows(from, sent, row), pieces_of_rows(to, come, row));
      }
      for (int rank = 0; rank < ranks(); ++rank) {
        if (rank != position()) received(come[static_cast<size_t>(rank)] * row);
      }
    });
  }

  void broadcast(const Fingerprint& mark, int root, const Tensor& tensor) override {
    group_.call(mark, [&] {
      group_.meet(mark);
      broadcast_bytes(tensor.raw(), tensor.bytes(), root);
      if (root != position()) received(tensor.bytes());
    });
  }

  void exchange(std::span<const MarkedMessage> sends,
                std::span<const MarkedMessage> receives) override {
    if (sends.empty() && receives.empty()) return;
    const Fingerprint& mark = receives.empty() ? sends.front().mark : receives.front().mark;
    group_.call(mark, [&] { exchange_messages(mark, sends, receives); });
  }

  void barrier(const Fingerprint& mark) override {
    group_.call(mark, [&] { group_.meet(mark); });
  }

  void throw_if_broken() override { group_.throw_if_broken(); }

 private:
  int ranks() const { return group_.size(); }
  int position() const { return group_.position(); }
  int rank_at(int position) const { return group_.ranks()[static_cast<size_t>(position)]; }

  static Blocks rows_of(std::span<const int64_t> rows, int64_t row) {
    Blocks blocks(rows.size());
    int64_t place = 0;
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      blocks.set(rank, rows[rank] * row, place);
      place += rows[rank] * row;
    }
    return blocks;
  }

  static std::vector<Piece> pieces_of_rows(const Tensor& tensor, std::span<const int64_t> rows,
                                           int64_t row) {
    std::vector<Piece> pieces;
    std::byte* place = tensor.raw();
    for (const int64_t count : rows) {
      pieces.push_back({static_cast<int>(pieces.size()), place, count * row});
      place += count * row;
    }
    return pieces;
  }

  /// Whether MPI can receive all pieces where they belong.
  bool can_go_to_its_place(const PieceLayout& layout, const Tensor& whole) const {
    if (whole.bytes() > INT_MAX) return false;
    for (int rank = 0; rank < ranks(); ++rank) {
      if (!layout.one_block(rank)) return false;
    }
    return true;
  }

  void gather_in_place(const PieceLayout& layout, const Tensor& from, const Tensor& to) {
    const int64_t size = dtype_size(to.dtype());
    Blocks blocks(static_cast<size_t>(ranks()));
    for (int rank = 0; rank < ranks(); ++rank) {
      // A piece of one block may consist of several that follow each other.
      layout.for_each_block(rank, [&](int64_t in_whole, int64_t in_piece, int64_t /*length*/) {
        blocks.set(static_cast<size_t>(rank), layout.elements(rank) * size,
                   (in_whole - in_piece) * size);
      });
    }
    std::byte* const place = to.raw() + blocks.places[static_cast<size_t>(position())];
    gather(from.raw() == place ? nullptr : from.raw(), from.bytes(), to.raw(), blocks);
  }

  /// Gathers blocks of bytes. `from` is null if this rank's is in its place.
  void gather(const std::byte* from, int64_t bytes, std::byte* to, const Blocks& blocks) {
    check_mpi(
        MPI_Allgatherv(from == nullptr ? MPI_IN_PLACE : from, static_cast<int>(bytes), MPI_BYTE, to,
                       blocks.counts.data(), blocks.places.data(), MPI_BYTE, group_.data()),
        "MPI_Allgatherv");
  }

  /// The elements of a rank that move in one round, so that those of all ranks fit into the staging
  /// memory.
  int64_t round_elements(int64_t size) const {
    return std::max<int64_t>(1, kStagingBytes / (size * ranks()));
  }

  std::byte* staging(std::vector<std::byte>& memory) const {
    memory.resize(
        static_cast<size_t>(std::max<int64_t>(kStagingBytes, ranks() * int64_t{sizeof(int64_t)})));
    return memory.data();
  }

  /// Gathers pieces that lie in many places, or further apart than MPI counts.
  void gather_in_rounds(const PieceLayout& layout, const Tensor& from, const Tensor& to) {
    const int64_t size = dtype_size(to.dtype());
    const int64_t round = round_elements(size);
    std::byte* const arrived = staging(arrived_);
    std::vector<PieceCursor> cursors;
    int64_t longest = 0;
    for (int rank = 0; rank < ranks(); ++rank) {
      cursors.emplace_back(layout, rank, size);
      longest = std::max(longest, layout.elements(rank));
    }
    for (int64_t begin = 0; begin < longest; begin += round) {
      const auto count = [&](int rank) {
        return std::clamp<int64_t>(layout.elements(rank) - begin, 0, round);
      };
      Blocks blocks(static_cast<size_t>(ranks()));
      for (int rank = 0; rank < ranks(); ++rank) {
        blocks.set(static_cast<size_t>(rank), count(rank) * size, rank * round * size);
      }
      const int64_t own = count(position());
      gather(own == 0 ? arrived : from.raw() + begin * size, own * size, arrived, blocks);
      for (int rank = 0; rank < ranks(); ++rank) {
        cursors[static_cast<size_t>(rank)].scatter(arrived + rank * round * size, count(rank),
                                                   to.raw());
      }
    }
  }

  /// Sums the parts of all ranks of which this one is `to`. Each rank has as many elements as
  /// `elements_of` says; `pack` copies some of what this rank adds to one of them.
  template <typename ElementsOf, typename Pack>
  void reduce_in_rounds(const Fingerprint& mark, const Tensor& to, ElementsOf&& elements_of,
                        Pack&& pack) {
    const int64_t size = dtype_size(to.dtype());
    const int64_t round = round_elements(size);
    std::byte* const packed = staging(packed_);
    std::byte* const arrived = staging(arrived_);
    int64_t longest = 0;
    for (int rank = 0; rank < ranks(); ++rank) longest = std::max(longest, elements_of(rank));
    std::vector<const std::byte*> addends(static_cast<size_t>(ranks()));
    for (int64_t begin = 0; begin < longest; begin += round) {
      const auto count = [&](int rank) {
        return std::clamp<int64_t>(elements_of(rank) - begin, 0, round);
      };
      const int64_t own = count(position());
      Blocks out(addends.size());
      Blocks in(addends.size());
      for (int rank = 0; rank < ranks(); ++rank) {
        const int64_t place = rank * round * size;
        out.set(static_cast<size_t>(rank), count(rank) * size, place);
        in.set(static_cast<size_t>(rank), own * size, place);
        if (count(rank) > 0) pack(rank, begin, count(rank), packed + place);
        addends[static_cast<size_t>(rank)] = arrived + place;
      }
      check_mpi(MPI_Alltoallv(packed, out.counts.data(), out.places.data(), MPI_BYTE, arrived,
                              in.counts.data(), in.places.data(), MPI_BYTE, group_.data()),
                "MPI_Alltoallv");
      if (own > 0) reduce(mark.reduction, to.dtype(), addends, 0, own, to.raw() + begin * size);
    }
  }

  /// Gathers slices that lie in `to` one after the other, each rank's own in its place.
  void gather_slices(std::span<const Piece> slices, const Tensor& to) {
    if (to.bytes() > INT_MAX) {
      for (const Piece& slice : slices) broadcast_bytes(slice.memory, slice.bytes, slice.peer);
      return;
    }
    Blocks blocks(slices.size());
    for (size_t rank = 0; rank < slices.size(); ++rank) {
      blocks.set(rank, slices[rank].bytes, slices[rank].memory - to.raw());
    }
    gather(nullptr, 0, to.raw(), blocks);
  }

  void broadcast_bytes(std::byte* memory, int64_t bytes, int root) {
    for (int64_t done = 0; done < bytes; done += kMostMessageBytes) {
      const int64_t part = std::min(kMostMessageBytes, bytes - done);
      check_mpi(MPI_Bcast(memory + done, static_cast<int>(part), MPI_BYTE, root, group_.data()),
                "MPI_Bcast");
    }
  }

  /// Sends and receives pieces, of which there may be one of each direction and peer.
  void exchange_pieces(const Fingerprint& mark, std::span<const Piece> sends,
                       std::span<const Piece> receives) {
    std::vector<MPI_Request> requests;
    for (const Piece& piece : receives) {
      add_requests(piece, requests, [&](std::byte* memory, int bytes, MPI_Request* request) {
        return MPI_Irecv(memory, bytes, MPI_BYTE, piece.peer, 0, group_.data(), request);
      });
    }
    for (const Piece& piece : sends) {
      add_requests(piece, requests, [&](std::byte* memory, int bytes, MPI_Request* request) {
        return MPI_Isend(memory, bytes, MPI_BYTE, piece.peer, 0, group_.data(), request);
      });
    }
    std::vector<int> peers;
    for (const Piece& piece : receives) peers.push_back(piece.peer);
    for (const Piece& piece : sends) peers.push_back(piece.peer);
    std::ranges::sort(peers);
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    std::erase(peers, position());
    group_.wait(mark, requests, peers);
  }

  template <typename Begin>
  static void add_requests(const Piece& piece, std::vector<MPI_Request>& requests, Begin&& begin) {
    for (int64_t done = 0; done < piece.bytes; done += kMostMessageBytes) {
      requests.push_back(MPI_REQUEST_NULL);
      const int64_t bytes = std::min(kMostMessageBytes, piece.bytes - done);
      check_mpi(begin(piece.memory + done, static_cast<int>(bytes), &requests.back()),
                "a message of MPI");
    }
  }

  /// Sends heads, and the messages only after both sides have seen that they agree.
  void exchange_messages(const Fingerprint& mark, std::span<const MarkedMessage> sends,
                         std::span<const MarkedMessage> receives) {
    std::vector<MessageHead> out;
    for (const MarkedMessage& message : sends) out.push_back(head_of(message.mark));
    std::vector<MessageHead> of_receivers(sends.size());
    std::vector<MessageHead> own;
    for (const MarkedMessage& message : receives) own.push_back(head_of(message.mark));
    std::vector<MessageHead> of_senders(receives.size());
    exchange_heads(mark, sends, out, of_receivers, receives, own, of_senders);
    for (size_t i = 0; i < receives.size(); ++i) {
      if (of_senders[i].hash == own[i].hash) continue;
      throw Error("{}",
                  message_text(group_.text(), rank_at(receives[i].peer), of_senders[i].text.data(),
                               rank_at(position()), own[i].text.data()));
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      if (of_receivers[i].hash == out[i].hash) continue;
      throw Error("{}", message_text(group_.text(), rank_at(position()), out[i].text.data(),
                                     rank_at(sends[i].peer), of_receivers[i].text.data()));
    }
    std::vector<Piece> outgoing;
    for (const MarkedMessage& message : sends) {
      outgoing.push_back({message.peer, message.tensor.raw(), message.tensor.bytes()});
    }
    std::vector<Piece> incoming;
    for (const MarkedMessage& message : receives) {
      incoming.push_back({message.peer, message.tensor.raw(), message.tensor.bytes()});
      if (message.peer != position()) received(message.tensor.bytes());
    }
    exchange_pieces(mark, outgoing, incoming);
  }

  /// Each sender gives its head to the receiver, and the receiver its own to the sender.
  void exchange_heads(const Fingerprint& mark, std::span<const MarkedMessage> sends,
                      std::span<MessageHead> out, std::span<MessageHead> of_receivers,
                      std::span<const MarkedMessage> receives, std::span<MessageHead> own,
                      std::span<MessageHead> of_senders) {
    constexpr int kOfSender = 0;
    constexpr int kOfReceiver = 1;
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    const auto swap = [&](int peer, MessageHead& give, int give_tag, MessageHead& get,
                          int get_tag) {
      if (peer != position() && std::ranges::find(peers, peer) == peers.end()) {
        peers.push_back(peer);
      }
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(
          MPI_Irecv(&get, sizeof get, MPI_BYTE, peer, get_tag, group_.marks(), &requests.back()),
          "MPI_Irecv");
      requests.push_back(MPI_REQUEST_NULL);
      check_mpi(
          MPI_Isend(&give, sizeof give, MPI_BYTE, peer, give_tag, group_.marks(), &requests.back()),
          "MPI_Isend");
    };
    for (size_t i = 0; i < sends.size(); ++i) {
      swap(sends[i].peer, out[i], kOfSender, of_receivers[i], kOfReceiver);
    }
    for (size_t i = 0; i < receives.size(); ++i) {
      swap(receives[i].peer, own[i], kOfReceiver, of_senders[i], kOfSender);
    }
    group_.wait(mark, requests, peers);
  }

  MpiGroup& group_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> arrived_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport(MpiGroup& group) {
  return std::make_unique<MpiTransport>(group);
}

}  // namespace tessera
