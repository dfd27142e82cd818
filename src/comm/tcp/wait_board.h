#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/tcp/plane_letters.h"

namespace tessera {

/// What a rank says that it does, or that it says nothing.
struct RankAnswer {
  std::vector<LastCall> calls;  ///< its last call in each group; empty if it does not answer
  std::string text;             ///< what it does, for messages
};

/// The waits of all ranks in calls whose bytes move by MPI, as the first rank's process knows them.
/// A rank tells a wait that has lasted for a moment. The board finds the waits that cannot end, and
/// tells the ranks why:
///
/// - Two ranks of a group wait in collectives of the same number that differ.
/// - A rank that is waited for has ended.
/// - The time of a wait is over. Then the board asks the ranks that are waited for what they do.
///
/// After that, all waits of the group end by the same error. Any thread may call any function.
class WaitBoard {
 public:
  struct Functions {
    /// Tells `rank` that its wait cannot end, and why.
    std::function<void(int rank, int64_t wait, const std::string& why)> tell;
    /// Asks ranks what they do. Returns an answer for each, and takes some seconds if one is
    /// silent.
    std::function<std::vector<RankAnswer>(std::span<const int> ranks)> ask;
    std::function<std::string(int rank)> text;  ///< returns the rank's name in messages
  };

  explicit WaitBoard(Functions functions);
  ~WaitBoard() { stop(); }
  WaitBoard(const WaitBoard&) = delete;
  WaitBoard& operator=(const WaitBoard&) = delete;

  /// Ends the thread of the board, which calls the functions.
  void stop();

  /// Adds a wait. Throws BadMessage if the rank has too many.
  void add(int rank, PlaneWait wait);
  /// Forgets a wait, which has ended.
  void remove(int rank, int64_t wait);
  /// Notes that a rank makes no more calls.
  void end(int rank);

 private:
  using Clock = std::chrono::steady_clock;
  using Key = std::pair<int, int64_t>;  // a rank, and the number of its wait
  using Lock = std::unique_lock<std::mutex>;

  struct Wait {
    PlaneWait of;
    std::string group;  // group_text()
    std::string call;   // Fingerprint::text()
    uint64_t hash = 0;  // Fingerprint::hash()
    Clock::time_point deadline;
  };

  using WaitMap = std::map<Key, Wait>;

  void watch(const std::stop_token& stop);
  // The caller holds the lock.
  void find_differences();
  void find_ended();
  void find_late(Lock& lock);
  std::string late_text(const Key& key, const Wait& wait,
                        const std::map<int, RankAnswer>& answers) const;
  bool is_in(int rank, const Wait& wait) const;

  const Functions functions_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  WaitMap waits_;
  std::map<std::string, std::string> broken_;  // by group: why its waits cannot end
  std::map<int, Clock::time_point> ended_;     // by rank: when it ended
  std::jthread watcher_;                       // runs watch()
};

}  // namespace tessera
