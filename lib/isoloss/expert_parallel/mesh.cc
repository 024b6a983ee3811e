#include "isoloss/expert_parallel/mesh.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/local_exchange.h"
#include "isoloss/expert_parallel/ranked_exchange.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::expert_parallel {
namespace {

using transport::OpKind;
using transport::RankRange;

}  // namespace

bool IsLocal(const MeshConfig& config) {
  const ExchangeOptions& options = config.options;
  return config.topology.ranks == 1 && config.dispatch_units == 1 &&
         options.algorithm == Algorithm::kFlat &&
         options.weight_site == WeightSite::kSource &&
         options.payload == "unquantized" &&
         options.gradient_payload == "unquantized" && options.padding == 1;
}

Mesh::Mesh(size_t experts, ThreadTeam& team)
    : Mesh({.topology = {.experts = experts}, .options = {}}, nullptr, team) {}

Mesh::Mesh(const MeshConfig& config,
           std::unique_ptr<transport::Transport> transport, ThreadTeam& team)
    : config_(config), transport_(std::move(transport)), team_(team) {
  ISOLOSS_ASSERT(transport_ != nullptr || IsLocal(config));
  if (transport_ != nullptr) {
    ISOLOSS_ASSERT(static_cast<size_t>(transport_->ranks()) ==
                   config.topology.ranks);
  }
}

Mesh::~Mesh() = default;

size_t Mesh::processes() const {
  return transport_ ? static_cast<size_t>(transport_->processes()) : 1;
}

size_t Mesh::process() const {
  return transport_ ? static_cast<size_t>(transport_->process()) : 0;
}

size_t Mesh::ProcessesPerGroup() const {
  const size_t hosted = config_.topology.ranks / processes();
  return std::max<size_t>(1, config_.topology.group_ranks() / hosted);
}

ExpertShard Mesh::experts() const {
  const size_t count = config_.topology.experts / ProcessesPerGroup();
  return {process() % ProcessesPerGroup() * count, count};
}

bool Mesh::HoldsFirstCopyOfExperts() const {
  return process() < ProcessesPerGroup();
}

size_t Mesh::first_unit() const {
  const Topology& topology = config_.topology;
  const size_t first_rank = process() * (topology.ranks / processes());
  return first_rank / topology.group_ranks() *
         (config_.dispatch_units / topology.replicas);
}

std::unique_ptr<Exchange> Mesh::MakeExchange(kernels::Rounding rounding) {
  const size_t layer = exchanges_++;
  std::unique_ptr<Exchange> exchange = MakePlainExchange(rounding);
  return decorator_ ? decorator_(layer, std::move(exchange))
                    : std::move(exchange);
}

std::unique_ptr<Exchange> Mesh::MakePlainExchange(kernels::Rounding rounding) {
  if (transport_ == nullptr) {
    return std::make_unique<LocalExchange>(config_.topology.experts, rounding,
                                           team_);
  }
  Conservation& conservation = conservation_.emplace_back(
      transport_->local_ranks(), config_.topology.ranks);
  return std::make_unique<RankedExchange>(
      ExchangeSetup{.topology = config_.topology,
                    .options = config_.options,
                    .dispatch_units = config_.dispatch_units,
                    .rounding = rounding,
                    .transport = *transport_,
                    .team = team_},
      static_cast<int>(conservation_.size()) - 1, conservation);
}

void Mesh::BeginStep(int64_t step) {
  step_ = step;
  if (transport_ != nullptr) transport_->BeginStep(step);
}

void Mesh::CheckConservation() {
  if (transport_ == nullptr) return;
  const size_t ranks = config_.topology.ranks;
  balances_.resize(conservation_.size() * ranks);
  transport_->AllReduce(
      {OpKind::kConservation}, transport::Reduction::kSum,
      [&](int rank, std::span<uint64_t> mine) {
        for (size_t layer = 0; layer < conservation_.size(); ++layer) {
          for (size_t source = 0; source < ranks; ++source) {
            mine[layer * ranks + source] =
                conservation_[layer].Of(static_cast<size_t>(rank), source);
          }
        }
      },
      balances_);
  for (size_t i = 0; i < balances_.size(); ++i) {
    if (balances_[i] != 0) ReportLoss(i / ranks, i % ranks);
  }
  for (Conservation& layer : conservation_) layer.Reset();
}

/// All processes come here with the same arguments: they have the same sums.
void Mesh::ReportLoss(size_t layer, size_t source) {
  constexpr std::array operations = Conservation::kOperations;
  std::vector<uint64_t> sums(operations.size());
  transport_->AllReduce(
      {OpKind::kConservation, static_cast<int>(layer)},
      transport::Reduction::kSum,
      [&](int rank, std::span<uint64_t> mine) {
        for (size_t i = 0; i < operations.size(); ++i) {
          mine[i] = conservation_[layer].Of(static_cast<size_t>(rank), source,
                                            operations[i]);
        }
      },
      sums);
  const auto at = std::find_if(sums.begin(), sums.end(),
                               [](uint64_t sum) { return sum != 0; });
  ISOLOSS_ASSERT(at != sums.end());
  const transport::Operation operation = {
      operations[static_cast<size_t>(at - sums.begin())],
      static_cast<int>(layer)};
  ThrowError(ErrorKind::kTransport,
             "step {}, {}: rows and weights sent for the tokens of rank {} are "
             "not those that arrived (difference of hash sums {}). A row was "
             "lost, doubled, changed or taken for another.",
             step_, transport::Describe(operation), source, DigestToHex(*at));
}

template <typename T>
std::vector<T> Mesh::GatherScalars(T mine) {
  const auto table = transport_->AllGather(
      {OpKind::kScalars}, sizeof(T), [&](int, std::span<std::byte> bytes) {
        std::memcpy(bytes.data(), &mine, sizeof(T));
      });
  std::vector<T> values(processes());
  for (size_t p = 0; p < values.size(); ++p) {
    const RankRange ranks = transport_->RanksOf(static_cast<int>(p));
    std::memcpy(&values[p],
                &table[static_cast<size_t>(ranks.first) * sizeof(T)],
                sizeof(T));
  }
  return values;
}

double Mesh::Sum(double node) {
  if (processes() == 1) return node;
  const std::vector<double> nodes = GatherScalars(node);
  return kernels::AlignedTreeSum(nodes.data(), nodes.size());
}

int64_t Mesh::Sum(int64_t value) {
  if (processes() == 1) return value;
  const std::vector<int64_t> values = GatherScalars(value);
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

uint64_t Mesh::Vote(uint64_t code) {
  if (transport_ == nullptr) return code;
  uint64_t largest = 0;
  transport_->AllReduce(
      {OpKind::kVote}, transport::Reduction::kMax,
      [code](int, std::span<uint64_t> mine) { mine[0] = code; }, {&largest, 1});
  return largest;
}

void Mesh::AwaitAll() {
  if (transport_ != nullptr) transport_->Barrier();
}

std::vector<size_t> Mesh::AllProcesses() const {
  std::vector<size_t> all(processes());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

std::vector<size_t> Mesh::ProcessesWithSameExperts() const {
  const size_t of_group = ProcessesPerGroup();
  std::vector<size_t> peers;
  for (size_t p = process() % of_group; p < processes(); p += of_group) {
    peers.push_back(p);
  }
  return peers;
}

std::vector<size_t> Mesh::ProcessesOfGroup() const {
  const size_t of_group = ProcessesPerGroup();
  std::vector<size_t> peers(of_group);
  std::iota(peers.begin(), peers.end(), process() / of_group * of_group);
  return peers;
}

/// The first rank of each process speaks for it.
template <typename Outgoing, typename Incoming>
void Mesh::ExchangeWith(OpKind kind, std::span<const size_t> peers,
                        const Outgoing& outgoing, const Incoming& incoming) {
  const auto leader = [&](size_t peer) {
    return transport_->RanksOf(static_cast<int>(peer)).first;
  };
  const int self = leader(process());
  const auto each_other = [&](const auto& visit) {
    for (size_t i = 0; i < peers.size(); ++i) {
      if (peers[i] != process()) visit(i, leader(peers[i]));
    }
  };
  transport_->AllToAll(
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

/// Reduce-scatter, then all-gather: peer i adds up slice i of all tensors laid
/// end to end.
void Mesh::SumOver(std::span<const size_t> peers,
                   std::span<const MatrixView<float>> gradients) {
  if (peers.size() == 1) return;
  flat_.clear();
  for (const MatrixView<float>& gradient : gradients) {
    flat_.insert(flat_.end(), gradient.data(),
                 gradient.data() + gradient.rows() * gradient.cols());
  }
  const auto self = static_cast<size_t>(
      std::find(peers.begin(), peers.end(), process()) - peers.begin());
  const auto slice = [&](size_t i) {
    const size_t begin = flat_.size() * i / peers.size();
    const size_t end = flat_.size() * (i + 1) / peers.size();
    return std::span(flat_).subspan(begin, end - begin);
  };
  const std::span<float> mine = slice(self);
  slices_.resize(peers.size());
  for (auto& values : slices_) values.resize(mine.size());
  std::copy(mine.begin(), mine.end(), slices_[self].begin());
  ExchangeWith(
      OpKind::kGradients, peers,
      [&](size_t i) { return std::as_bytes(slice(i)); },
      [&](size_t i) { return std::as_writable_bytes(std::span(slices_[i])); });

  // The aligned tree over peers: neighbours first.
  for (size_t step = 1; step < peers.size(); step *= 2) {
    for (size_t i = 0; i + step < peers.size(); i += 2 * step) {
      for (size_t j = 0; j < mine.size(); ++j) {
        slices_[i][j] += slices_[i + step][j];
      }
    }
  }
  std::copy(slices_[0].begin(), slices_[0].end(), mine.begin());
  ExchangeWith(
      OpKind::kGradients, peers, [&](size_t) { return std::as_bytes(mine); },
      [&](size_t i) { return std::as_writable_bytes(slice(i)); });

  const float* next = flat_.data();
  for (const MatrixView<float>& gradient : gradients) {
    const size_t size = gradient.rows() * gradient.cols();
    std::copy_n(next, size, gradient.data());
    next += size;
  }
}

void Mesh::SumReplicated(std::span<const MatrixView<float>> gradients) {
  SumOver(AllProcesses(), gradients);
}

void Mesh::SumExperts(std::span<const MatrixView<float>> gradients) {
  SumOver(ProcessesWithSameExperts(), gradients);
}

template <typename T>
std::vector<T> Mesh::GatherFrom(OpKind kind, std::span<const size_t> peers,
                                std::span<const T> mine) {
  std::vector<T> all(mine.size() * peers.size());
  const auto self = static_cast<size_t>(
      std::find(peers.begin(), peers.end(), process()) - peers.begin());
  const auto part = [&](size_t i) {
    return std::span(all).subspan(i * mine.size(), mine.size());
  };
  std::copy(mine.begin(), mine.end(), part(self).begin());
  if (peers.size() == 1) return all;
  ExchangeWith(
      kind, peers, [&](size_t) { return std::as_bytes(mine); },
      [&](size_t i) { return std::as_writable_bytes(part(i)); });
  return all;
}

std::vector<double> Mesh::GatherExperts(std::span<const double> mine) {
  return GatherFrom(OpKind::kScalars, ProcessesOfGroup(), mine);
}

std::vector<double> Mesh::Gather(std::span<const double> mine) {
  return GatherFrom(OpKind::kScalars, AllProcesses(), mine);
}

std::vector<int32_t> Mesh::Gather(std::span<const int32_t> mine) {
  return GatherFrom(OpKind::kScalars, AllProcesses(), mine);
}

std::vector<int64_t> Mesh::SumToFirst(std::vector<int64_t> values) {
  if (processes() == 1) return values;
  const bool first = process() == 0;
  std::vector<std::vector<int64_t>> others(processes());
  if (first) {
    for (auto& other : others) other.resize(values.size());
  }
  ExchangeWith(
      OpKind::kScalars, AllProcesses(),
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

void Mesh::GatherExperts(MatrixView<const float> mine,
                         MatrixView<float> whole) {
  const std::vector<float> all =
      GatherFrom(OpKind::kWeights, ProcessesOfGroup(),
                 std::span(mine.data(), mine.rows() * mine.cols()));
  ISOLOSS_ASSERT(whole.rows() * whole.cols() == all.size());
  std::copy(all.begin(), all.end(), whole.data());
}

void Mesh::CheckReplicas(uint64_t digest, const char* what) {
  if (processes() == 1) return;
  const std::vector<uint64_t> digests = GatherScalars(digest);
  for (size_t p = 1; p < digests.size(); ++p) {
    if (digests[p] == digests[0]) continue;
    ReportReplica(what, p, digests[p], 0, digests[0]);
  }
}

void Mesh::CheckExpertReplicas(uint64_t digest) {
  const size_t copies = ProcessesWithSameExperts().size();
  if (copies == 1) return;
  const std::vector<uint64_t> digests = GatherScalars(digest);
  const size_t holders = digests.size() / copies;
  for (size_t p = holders; p < digests.size(); ++p) {
    if (digests[p] == digests[p % holders]) continue;
    ReportReplica("weights of experts", p, digests[p], p % holders,
                  digests[p % holders]);
  }
}

void Mesh::ReportReplica(const char* what, size_t process, uint64_t digest,
                         size_t other, uint64_t others) const {
  ThrowError(ErrorKind::kTransport,
             "step {}, replica check: {} of process {} (digest {}) are not "
             "those of process {} ({}), but replicas must agree to the bit. A "
             "gradient was not reduced, or a process computed wrongly.",
             step_, what, process, DigestToHex(digest), other,
             DigestToHex(others));
}

}  // namespace isoloss::expert_parallel
