#include "isoloss/transport/transport.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "isoloss/base/nearest_name.h"
#include "isoloss/transport/launch.h"
#include "isoloss/transport/registry.h"

namespace isoloss::transport {

#define ISOLOSS_TRANSPORT(name) extern const TransportKind kTransport_##name;
#include "isoloss/transport/transports.def"
#undef ISOLOSS_TRANSPORT

namespace {

constexpr const TransportKind* kTransports[] = {
#define ISOLOSS_TRANSPORT(name) &kTransport_##name,
#include "isoloss/transport/transports.def"
#undef ISOLOSS_TRANSPORT
};

const TransportKind& KindByName(const std::string& name) {
  for (const TransportKind* kind : kTransports) {
    if (kind->name == name) return *kind;
  }
  const std::vector<std::string> names = TransportNames();
  ThrowError(ErrorKind::kConfig,
             "transport: `{}` was given, but it must be one of {}.{}", name,
             fmt::join(names, ", "), DidYouMean(name, names));
}

uint64_t Reduce(Reduction reduction, uint64_t a, uint64_t b) {
  switch (reduction) {
    case Reduction::kSum:
      return a + b;
    case Reduction::kXor:
      return a ^ b;
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kMax:
      return std::max(a, b);
  }
  ISOLOSS_ASSERT(false);
}

}  // namespace

RankRange Transport::RanksOf(int process) const {
  const auto v = static_cast<int64_t>(ranks());
  return {static_cast<int>(v * process / processes()),
          static_cast<int>(v * (process + 1) / processes())};
}

void Transport::AllReduce(
    const Operation& operation, Reduction reduction,
    const std::function<void(int rank, std::span<uint64_t> mine)>& fill,
    std::span<uint64_t> values) {
  const size_t bytes = values.size_bytes();
  const auto all =
      AllGather(operation, bytes, [&](int rank, std::span<std::byte> mine) {
        // Gathered contributions begin at multiples of 8 bytes.
        fill(rank, {reinterpret_cast<uint64_t*>(mine.data()), values.size()});
      });
  if (values.empty()) return;
  std::memcpy(values.data(), all.data(), bytes);
  for (size_t rank = 1; rank < static_cast<size_t>(ranks()); ++rank) {
    for (size_t i = 0; i < values.size(); ++i) {
      uint64_t value = 0;
      std::memcpy(&value, all.data() + rank * bytes + i * sizeof(value),
                  sizeof(value));
      values[i] = Reduce(reduction, values[i], value);
    }
  }
}

void Transport::Barrier() {
  AllGather({OpKind::kBarrier}, 0, [](int, std::span<std::byte>) {});
}

std::vector<std::string> TransportNames() {
  std::vector<std::string> names;
  for (const TransportKind* kind : kTransports) names.emplace_back(kind->name);
  return names;
}

std::unique_ptr<Transport> MakeTransport(const std::string& name,
                                         const TransportOptions& options,
                                         Executor& executor) {
  const TransportKind& kind = KindByName(name);
  const Launch launch = DetectLaunch();
  if (options.ranks < 1 || options.ranks > kMaxRanks) {
    ThrowError(
        ErrorKind::kConfig,
        "transport `{}`: {} ranks are wanted, but there must be 1 to {}. "
        "Give a number in that range.",
        name, options.ranks, kMaxRanks);
  }
  if (!(options.deadline_seconds > 0)) {
    ThrowError(ErrorKind::kConfig,
               "transport `{}`: the deadline is {} s, but it must be above 0. "
               "Give the longest time that one rank may wait for another.",
               name, options.deadline_seconds);
  }
  if (!kind.spans_processes && launch.processes > 1) {
    ThrowError(ErrorKind::kConfig,
               "transport `{}`: {} started {} processes, but this transport "
               "runs in one, so all of them would do and write the same. Use "
               "the transport `mpi`, or start one process.",
               name, launch.launcher, launch.processes);
  }
  if (kind.spans_processes && launch.launcher.empty()) {
    ThrowError(ErrorKind::kConfig,
               "transport `{}`: no MPI launcher started this process. Start it "
               "with `mpirun -n <processes>` (`mpirun -n 1` is fine), or use "
               "the transport `loop`.",
               name);
  }
  if (options.ranks % launch.processes != 0) {
    ThrowError(ErrorKind::kConfig,
               "transport `{}`: {} ranks do not divide evenly among {} "
               "processes. Start a number of processes that divides the number "
               "of ranks.",
               name, options.ranks, launch.processes);
  }
  return kind.make(options, executor);
}

}  // namespace isoloss::transport
