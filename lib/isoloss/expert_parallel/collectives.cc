#include "isoloss/expert_parallel/collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::expert_parallel {
namespace {

using transport::OpKind;

/// Every process of `peers` (this one included) sends bytes to every process of
/// them; `outgoing(i)` is for peers[i], `incoming(i)` takes what peers[i] sent.
/// The first rank of each process acts for it.
template <typename Outgoing, typename Incoming>
void ExchangeWith(const Mesh& mesh, OpKind kind, std::span<const size_t> peers,
                  const Outgoing& outgoing, const Incoming& incoming) {
  const auto leader = [&](size_t peer) {
    return mesh.transport()->RanksOf(static_cast<int>(peer)).first;
  };
  const int self = leader(mesh.process());
  const auto each_other = [&](const auto& visit) {
    for (size_t i = 0; i < peers.size(); ++i) {
      if (peers[i] != mesh.process()) visit(i, leader(peers[i]));
    }
  };
  mesh.transport()->AllToAll(
      {kind},
      [&](int rank, transport::Outbox& outbox) {
        if (rank != self) return;
        each_other([&](size_t i, int to) {
          const std::span<const std::byte> bytes = outgoing(i);
          if (bytes.empty()) return;
          std::memcpy(outbox.Add(to, {1, bytes.size()}).data(), bytes.data(),
                      bytes.size());
        });
      },
      [&](int rank, std::span<transport::MessageSize> sizes) {
        std::fill(sizes.begin(), sizes.end(), transport::MessageSize{});
        if (rank != self) return;
        each_other([&](size_t i, int from) {
          const size_t bytes = incoming(i).size();
          if (bytes > 0) sizes[static_cast<size_t>(from)] = {1, bytes};
        });
      },
      [&](int rank, const transport::Inbox& inbox) {
        if (rank != self) return;
        each_other([&](size_t i, int from) {
          const std::span<std::byte> to = incoming(i);
          if (to.empty()) return;
          std::memcpy(to.data(), inbox.From(from).data(), to.size());
        });
      });
}

/// Returns one value of each process, in their order.
template <typename T>
std::vector<T> GatherScalars(const Mesh& mesh, T mine) {
  const auto table = mesh.transport()->AllGather(
      {OpKind::kScalars}, sizeof(T), [&](int, std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), &mine, sizeof(T));
      });
  std::vector<T> values(mesh.processes());
  for (size_t p = 0; p < values.size(); ++p) {
    const auto ranks = mesh.transport()->RanksOf(static_cast<int>(p));
    std::memcpy(&values[p],
                &table[static_cast<size_t>(ranks.first) * sizeof(T)],
                sizeof(T));
  }
  return values;
}

/// Does a reduce-scatter, then an all-gather: peer i adds up slice i of all
/// tensors laid end to end.
void SumOver(const Mesh& mesh, std::span<const size_t> peers,
             std::span<const MatrixView<float>> gradients) {
  if (peers.size() == 1) return;
  // The buffers are kept from step to step.
  static thread_local std::vector<float> kept_flat;
  static thread_local std::vector<std::vector<float>> kept_slices;
  // All phases use the buffers of this thread, though they may run on other
  // threads of the executor.
  std::vector<float>& flat = kept_flat;  // tensors, one after another
  std::vector<std::vector<float>>& slices = kept_slices;  // one per peer
  flat.clear();
  for (const MatrixView<float>& gradient : gradients) {
    flat.insert(flat.end(), gradient.data(),
                gradient.data() + gradient.rows() * gradient.cols());
  }
  const auto self = static_cast<size_t>(
      std::find(peers.begin(), peers.end(), mesh.process()) - peers.begin());
  const auto slice = [&](size_t i) {
    const size_t begin = flat.size() * i / peers.size();
    const size_t end = flat.size() * (i + 1) / peers.size();
    return std::span(flat).subspan(begin, end - begin);
  };
  const std::span<float> mine = slice(self);
  slices.resize(peers.size());
  for (auto& values : slices) values.resize(mine.size());
  std::copy(mine.begin(), mine.end(), slices[self].begin());
  ExchangeWith(
      mesh, OpKind::kGradients, peers,
      [&](size_t i) { return std::as_bytes(slice(i)); },
      [&](size_t i) { return std::as_writable_bytes(std::span(slices[i])); });

  // The aligned tree over peers adds neighbours first.
  for (size_t step = 1; step < peers.size(); step *= 2) {
    for (size_t i = 0; i + step < peers.size(); i += 2 * step) {
      for (size_t j = 0; j < mine.size(); ++j) {
        slices[i][j] += slices[i + step][j];
      }
    }
  }
  std::copy(slices[0].begin(), slices[0].end(), mine.begin());
  ExchangeWith(
      mesh, OpKind::kGradients, peers,
      [&](size_t) { return std::as_bytes(mine); },
      [&](size_t i) { return std::as_writable_bytes(slice(i)); });

  const float* next = flat.data();
  for (const MatrixView<float>& gradient : gradients) {
    const size_t size = gradient.rows() * gradient.cols();
    std::copy_n(next, size, gradient.data());
    next += size;
  }
}

template <typename T>
std::vector<T> GatherFrom(const Mesh& mesh, OpKind kind,
                          std::span<const size_t> peers,
                          std::span<const T> mine) {
  std::vector<T> all(mine.size() * peers.size());
  const auto self = static_cast<size_t>(
      std::find(peers.begin(), peers.end(), mesh.process()) - peers.begin());
  const auto part = [&](size_t i) {
    return std::span(all).subspan(i * mine.size(), mine.size());
  };
  std::copy(mine.begin(), mine.end(), part(self).begin());
  if (peers.size() == 1) return all;
  ExchangeWith(
      mesh, kind, peers, [&](size_t) { return std::as_bytes(mine); },
      [&](size_t i) { return std::as_writable_bytes(part(i)); });
  return all;
}

}  // namespace

double Sum(const Mesh& mesh, double node) {
  if (mesh.processes() == 1) return node;
  const std::vector<double> nodes = GatherScalars(mesh, node);
  return kernels::AlignedTreeSum(nodes.data(), nodes.size());
}

int64_t Sum(const Mesh& mesh, int64_t value) {
  if (mesh.processes() == 1) return value;
  const std::vector<int64_t> values = GatherScalars(mesh, value);
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

uint64_t Vote(const Mesh& mesh, uint64_t code) {
  if (mesh.transport() == nullptr) return code;
  uint64_t largest = 0;
  mesh.transport()->AllReduce(
      {OpKind::kVote}, transport::Reduction::kMax,
      [code](int, std::span<uint64_t> mine) { mine[0] = code; }, {&largest, 1});
  return largest;
}

void AwaitAll(const Mesh& mesh) {
  if (mesh.transport() != nullptr) mesh.transport()->Barrier();
}

void SumReplicated(const Mesh& mesh,
                   std::span<const MatrixView<float>> gradients) {
  SumOver(mesh, mesh.AllProcesses(), gradients);
}

void SumExperts(const Mesh& mesh,
                std::span<const MatrixView<float>> gradients) {
  SumOver(mesh, mesh.ProcessesWithSameExperts(), gradients);
}

std::vector<double> GatherExperts(const Mesh& mesh,
                                  std::span<const double> mine) {
  return GatherFrom(mesh, OpKind::kScalars, mesh.ProcessesOfGroup(), mine);
}

std::vector<double> Gather(const Mesh& mesh, std::span<const double> mine) {
  return GatherFrom(mesh, OpKind::kScalars, mesh.AllProcesses(), mine);
}

std::vector<int32_t> Gather(const Mesh& mesh, std::span<const int32_t> mine) {
  return GatherFrom(mesh, OpKind::kScalars, mesh.AllProcesses(), mine);
}

std::vector<uint64_t> GatherDigests(const Mesh& mesh, uint64_t mine) {
  return GatherScalars(mesh, mine);
}

std::vector<int64_t> SumToFirst(const Mesh& mesh, std::vector<int64_t> values) {
  if (mesh.processes() == 1) return values;
  const bool first = mesh.process() == 0;
  std::vector<std::vector<int64_t>> others(mesh.processes());
  if (first) {
    for (auto& other : others) other.resize(values.size());
  }
  ExchangeWith(
      mesh, OpKind::kScalars, mesh.AllProcesses(),
      [&](size_t i) {
        return std::as_bytes(
            std::span(values).first(i == 0 ? values.size() : 0));
      },
      [&](size_t i) { return std::as_writable_bytes(std::span(others[i])); });
  for (size_t p = 1; first && p < others.size(); ++p) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += others[p][i];
  }
  return values;
}

void GatherExperts(const Mesh& mesh, MatrixView<const float> mine,
                   MatrixView<float> whole) {
  const std::vector<float> all =
      GatherFrom(mesh, OpKind::kWeights, mesh.ProcessesOfGroup(),
                 std::span(mine.data(), mine.rows() * mine.cols()));
  ISOLOSS_ASSERT(whole.rows() * whole.cols() == all.size());
  std::copy(all.begin(), all.end(), whole.data());
}

}  // namespace isoloss::expert_parallel
