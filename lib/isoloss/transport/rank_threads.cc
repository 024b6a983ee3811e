#include "isoloss/transport/rank_threads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <system_error>
#include <utility>

#include "isoloss/base/rng.h"
#include "isoloss/transport/failure.h"
#include "isoloss/transport/mailbox.h"
#include "isoloss/transport/timed_wait.h"

namespace isoloss::transport {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using std::chrono::milliseconds;

/// Waits are cut into slices that grow up to this length. After each slice a
/// thread looks for a failure, a stop, and whether the ranks that it waits for
/// have published.
constexpr milliseconds kLongestSlice{50};
/// Threads may take this long to leave an operation that has failed.
constexpr milliseconds kGrace{200};

using Fill = std::function<void(int rank, std::span<std::byte> mine)>;

/// Lets ranks pass one by one in the order of a permutation.
class Turnstile {
 public:
  explicit Turnstile(size_t ranks) : order_(ranks), turn_(ranks), next_(ranks) {
    std::iota(order_.begin(), order_.end(), size_t{0});
  }

  /// Shuffles the order and lets the first rank pass in `round`. No rank may be
  /// waiting here meanwhile.
  void Open(const CounterRng& random, uint32_t round) {
    for (size_t i = order_.size(); i > 1; --i) {
      std::swap(order_[i - 1], order_[random.Below(i, i)]);
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      next_[order_[i]] = i + 1 < order_.size() ? order_[i + 1] : order_[0];
    }
    turn_[order_[0]].store(round, std::memory_order_release);
  }
  void Await(size_t rank, uint32_t round, const Failure& failure) const {
    for (;;) {
      const uint32_t seen = turn_[rank].load(std::memory_order_acquire);
      if (seen == round) return;
      failure.Check();
      WaitWhile(turn_[rank], seen, kLongestSlice);
    }
  }
  void LetNextPass(size_t rank, uint32_t round) {
    turn_[next_[rank]].store(round, std::memory_order_release);
    WakeAll(turn_[next_[rank]]);
  }

 private:
  std::vector<size_t> order_;
  std::vector<std::atomic<uint32_t>> turn_;  // [V] last round let pass
  std::vector<size_t> next_;                 // [V]
};

}  // namespace

/// This state belongs to all threads.
class RankThreads::Shared {
 public:
  Shared(const TransportOptions& wanted, Order order)
      : options(wanted),
        shuffled_(order == Order::kShuffled),
        published_(ranks()),
        published_at_(ranks()),
        doing_(ranks()),
        exited(ranks()),
        publishing_(ranks()),
        consuming_(ranks()) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      outboxes_.emplace_back(rank, options);
      inboxes_.emplace_back(rank, options.ranks);
      waited_.emplace_back(ranks());
    }
  }

  size_t ranks() const { return static_cast<size_t>(options.ranks); }

  /// Serves operations on the thread of `rank` until Stop.
  void Serve(size_t rank) {
    for (uint32_t seen = 0;;) {
      while (generation_.load(std::memory_order_acquire) == seen) {
        WaitWhile(generation_, seen, std::chrono::seconds(1));
      }
      if (stopping_.load(std::memory_order_acquire)) break;
      ++seen;
      try {
        Take(static_cast<int>(rank), seen);
      } catch (const std::exception& error) {
        Fail(error.what());
      }
      doing_[rank].store(nullptr, std::memory_order_relaxed);
      if (done_.fetch_add(1) + 1 == ranks()) WakeAll(done_);
    }
    exited[rank].store(1, std::memory_order_release);
    WakeAll(exited[rank]);
  }

  /// Runs the operation that is set below on all ranks. Only the calling thread
  /// calls this function.
  void RunOperation();
  void Stop() {
    stopping_.store(true, std::memory_order_release);
    generation_.fetch_add(1);
    WakeAll(generation_);
  }
  void Fail(const std::string& reason) {
    failure.Set(reason);
    WakeAll(published_count_);
    WakeAll(done_);
  }
  void MoveCountersTo(Counters& counters);

  // The operation is written while no thread is busy, and published by
  // generation_.
  const TransportOptions options;
  MessageHeader operation;
  Produce produce;  // copies, since a stuck phase may outlast the call
  Expect expect;
  Consume consume;
  Fill fill;  // empty for AllToAll
  Matrix<std::byte> gathered;
  Failure failure;

 private:
  void Take(int rank, uint32_t round);
  void Publish(int rank, uint32_t round);
  void AwaitSources(int rank, uint32_t round);
  void DeliverAll(int rank);
  void FindUnexpected();
  void Watch();
  std::string StuckRanks() const;
  CounterRng Random(const char* what, int rank) const;
  void Dawdle(int rank) const;
  template <typename Phase>
  void Do(int rank, const char* name, const Phase& phase);

  const bool shuffled_;
  std::vector<RankOutbox> outboxes_;
  std::vector<RankInbox> inboxes_;
  std::vector<std::vector<double>> waited_;  // [V receivers, V sources]

  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> published_count_{0};
  std::vector<std::atomic<uint32_t>> published_;  // [V] last round
  std::vector<Clock::time_point> published_at_;   // guarded by published_
  std::vector<std::atomic<const char*>> doing_;   // [V] phase, null: none
  std::atomic<uint32_t> phases_ended_{0};
  std::atomic<uint32_t> done_{0};

 public:
  std::vector<std::atomic<uint32_t>> exited;  // [V]

 private:
  Turnstile publishing_;
  Turnstile consuming_;
};

template <typename Phase>
void RankThreads::Shared::Do(int rank, const char* name, const Phase& phase) {
  failure.Check();
  auto& doing = doing_[static_cast<size_t>(rank)];
  doing.store(name, std::memory_order_relaxed);
  RunPhase(operation, rank, name, phase);
  doing.store(nullptr, std::memory_order_relaxed);
  phases_ended_.fetch_add(1, std::memory_order_relaxed);
}

CounterRng RankThreads::Shared::Random(const char* what, int rank) const {
  const uint64_t stream =
      StreamId(what) + operation.sequence * 65536 + static_cast<uint64_t>(rank);
  return {options.shuffle_seed, stream};
}

/// Gives other ranks a random chance to be faster.
void RankThreads::Shared::Dawdle(int rank) const {
  constexpr uint64_t kMostYields = 4;
  const uint64_t yields = Random("yields", rank).Below(0, kMostYields);
  for (uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
}

/// Does the part of `rank` in an operation.
void RankThreads::Shared::Take(int rank, uint32_t round) {
  const auto index = static_cast<size_t>(rank);
  if (fill) {
    Do(rank, "fill", [&] {
      fill(rank, {gathered.Row(index), gathered.cols()});
    });
    return;
  }
  Do(rank, "produce", [&] {
    outboxes_[index].Start(operation);
    produce(rank, outboxes_[index]);
    outboxes_[index].Seal();
  });
  Publish(rank, round);
  Do(rank, "expect", [&] { inboxes_[index].Start(operation, expect); });
  AwaitSources(rank, round);
  if (shuffled_) {
    consuming_.Await(index, round, failure);
    consuming_.LetNextPass(index, round);
    Dawdle(rank);
  }
  DeliverAll(rank);
  Do(rank, "consume", [&] { consume(rank, inboxes_[index]); });
}

void RankThreads::Shared::Publish(int rank, uint32_t round) {
  const auto index = static_cast<size_t>(rank);
  if (shuffled_) {
    publishing_.Await(index, round, failure);
    Dawdle(rank);
  }
  published_at_[index] = Clock::now();
  published_[index].store(round, std::memory_order_release);
  if (published_count_.fetch_add(1) + 1 == ranks()) WakeAll(published_count_);
  if (shuffled_) publishing_.LetNextPass(index, round);
}

/// Waits until every source that owes `rank` a message has published.
void RankThreads::Shared::AwaitSources(int rank, uint32_t round) {
  const auto begin = Clock::now();
  const auto index = static_cast<size_t>(rank);
  const auto is_here = [&](size_t source) {
    return inboxes_[index].expected(static_cast<int>(source)).rows == 0 ||
           published_[source].load(std::memory_order_acquire) == round;
  };
  milliseconds slice{1};
  for (size_t source = 0;;) {
    // The count is read before the sources, so that a rank that publishes later
    // ends the wait.
    const uint32_t count = published_count_.load(std::memory_order_acquire);
    while (source < ranks() && is_here(source)) ++source;
    if (source == ranks()) break;
    failure.Check();
    WaitWhile(published_count_, count, slice);
    slice = std::min(2 * slice, kLongestSlice);
  }
  for (size_t source = 0; source < ranks(); ++source) {
    if (inboxes_[index].expected(static_cast<int>(source)).rows == 0) continue;
    waited_[index][source] +=
        std::max(0.0, Seconds(published_at_[source] - begin).count());
  }
}

void RankThreads::Shared::DeliverAll(int rank) {
  failure.Check();
  RankInbox& inbox = inboxes_[static_cast<size_t>(rank)];
  std::vector<int> sources(ranks());
  std::iota(sources.begin(), sources.end(), 0);
  if (shuffled_) {
    const CounterRng random = Random("arrival", rank);
    for (size_t i = sources.size(); i > 1; --i) {
      std::swap(sources[i - 1], sources[random.Below(i, i)]);
    }
  }
  for (const int source : sources) {
    // A source that owes nothing may not have published yet.
    if (inbox.expected(source).rows == 0) continue;
    inbox.Deliver(source,
                  outboxes_[static_cast<size_t>(source)].MessageTo(rank));
  }
}

void RankThreads::Shared::RunOperation() {
  failure.Check();
  published_count_.store(0, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const uint32_t round = generation_.load(std::memory_order_relaxed) + 1;
  if (shuffled_) {
    publishing_.Open(Random("publish", 0), round);
    consuming_.Open(Random("consume", 0), round);
  }
  generation_.store(round, std::memory_order_release);
  WakeAll(generation_);
  Watch();
  failure.Check();
  if (!fill) FindUnexpected();
  failure.Check();
}

/// Receivers do not wait for sources that owe them nothing. So this function
/// looks at the end whether such sources have sent something.
void RankThreads::Shared::FindUnexpected() {
  size_t sent = 0;
  size_t delivered = 0;
  for (const RankOutbox& outbox : outboxes_) sent += outbox.messages();
  for (const RankInbox& inbox : inboxes_) delivered += inbox.delivered();
  if (sent == delivered) return;
  try {
    for (int rank = 0; rank < options.ranks; ++rank) {
      RankInbox& inbox = inboxes_[static_cast<size_t>(rank)];
      for (int source = 0; source < options.ranks; ++source) {
        if (inbox.expected(source).rows > 0) continue;
        inbox.Deliver(source,
                      outboxes_[static_cast<size_t>(source)].MessageTo(rank));
      }
    }
  } catch (const Error& error) {
    Fail(error.what());
  }
}

/// Returns when all ranks have done their part. If no phase ends for the
/// deadline, that is the failure, and it returns after a moment of grace.
void RankThreads::Shared::Watch() {
  const Seconds deadline(options.deadline_seconds);
  const auto longest_slice =
      std::chrono::ceil<milliseconds>(std::min(deadline / 4, Seconds(0.05)));
  auto last_end = Clock::now();
  auto limit = deadline;
  uint32_t ended = phases_ended_.load(std::memory_order_relaxed);
  for (;;) {
    const uint32_t done = done_.load(std::memory_order_acquire);
    if (done == ranks()) return;
    WaitWhile(done_, done, longest_slice);
    const uint32_t now_ended = phases_ended_.load(std::memory_order_relaxed);
    if (std::exchange(ended, now_ended) != now_ended) last_end = Clock::now();
    const Seconds still = Clock::now() - last_end;
    if (still < limit) continue;
    if (limit != deadline) return;
    limit += kGrace;
    Fail(fmt::format("{}: no rank got on for {:.3g} s, the deadline; {}",
                     Where(operation), still.count(), StuckRanks()));
  }
}

std::string RankThreads::Shared::StuckRanks() const {
  std::vector<std::string> stuck;
  for (size_t rank = 0; rank < ranks(); ++rank) {
    const char* phase = doing_[rank].load(std::memory_order_relaxed);
    if (phase == nullptr) continue;
    stuck.push_back(fmt::format("rank {} is in phase {}", rank, phase));
  }
  return fmt::format("{}", fmt::join(stuck, ", "));
}

void RankThreads::Shared::MoveCountersTo(Counters& counters) {
  counters.bytes.Resize(ranks(), ranks());
  counters.wait_seconds.assign(ranks(), 0.0);
  for (RankInbox& inbox : inboxes_) inbox.MoveCountersTo(counters);
  for (std::vector<double>& of_receiver : waited_) {
    for (size_t source = 0; source < ranks(); ++source) {
      counters.wait_seconds[source] += std::exchange(of_receiver[source], 0.0);
    }
  }
}

RankThreads::RankThreads(const char* name, const TransportOptions& options,
                         Order order)
    : name_(name), shared_(std::make_shared<Shared>(options, order)) {
  try {
    for (size_t rank = 0; rank < shared_->ranks(); ++rank) {
      threads_.emplace_back([shared = shared_, rank] { shared->Serve(rank); });
    }
  } catch (const std::system_error& error) {
    Stop();
    ThrowError(ErrorKind::kConfig,
               "transport `{}`: {} threads are wanted, but the system gives no "
               "more after {}: {}. Use the transport `loop`, fewer ranks, or "
               "raise the limit.",
               name, options.ranks, threads_.size(), error.code().message());
  }
}

RankThreads::~RankThreads() { Stop(); }

void RankThreads::Stop() {
  shared_->Stop();
  const auto end = Clock::now() + kGrace + kLongestSlice;
  const auto join_all = [&] {
    for (size_t rank = 0; rank < threads_.size(); ++rank) {
      if (!threads_[rank].joinable()) continue;
      const auto& exited = shared_->exited[rank];
      while (exited.load(std::memory_order_acquire) == 0 &&
             Clock::now() < end) {
        WaitWhile(exited, 0, kLongestSlice);
      }
      if (exited.load(std::memory_order_acquire) != 0) {
        threads_[rank].join();
      } else {
        threads_[rank].detach();
      }
    }
  };
  join_all();
}

int RankThreads::ranks() const { return shared_->options.ranks; }

void RankThreads::AllToAll(const Operation& operation, const Produce& produce,
                           const Expect& expect, const Consume& consume) {
  shared_->failure.Check();
  shared_->operation = OperationHeader(operation, 0, step_, ++sequence_);
  shared_->produce = produce;
  shared_->expect = expect;
  shared_->consume = consume;
  shared_->fill = nullptr;
  shared_->RunOperation();
}

std::span<const std::byte> RankThreads::AllGather(const Operation& operation,
                                                  size_t bytes,
                                                  const Fill& fill) {
  shared_->failure.Check();
  shared_->operation = OperationHeader(operation, 0, step_, ++sequence_);
  shared_->gathered.ResizeUninitialized(shared_->ranks(), bytes);
  shared_->fill = fill;
  shared_->RunOperation();
  return {shared_->gathered.data(), shared_->gathered.size()};
}

void RankThreads::Abort(const std::string& reason) { shared_->Fail(reason); }

Counters RankThreads::TakeCounters() {
  Counters counters;
  shared_->MoveCountersTo(counters);
  return counters;
}

}  // namespace isoloss::transport
