#include "isoloss/expert_parallel/layer_exchanges.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/indexed_exchange.h"
#include "isoloss/expert_parallel/local_exchange.h"
#include "isoloss/expert_parallel/ranked_exchange.h"

namespace isoloss::expert_parallel {

using transport::OpKind;

LayerExchanges::LayerExchanges(const MeshConfig& config,
                               transport::Transport* transport,
                               Executor& executor)
    : config_(config), transport_(transport), executor_(executor) {
  const size_t ranks = config.topology.ranks;
  spared_.bytes.Resize(ranks, ranks);
  if (transport == nullptr || RowsTravel()) return;
  if (std::string_view(transport->name()) == "loop") return;
  if (!executor.memory().is_host()) {
    ThrowError(ErrorKind::kConfig,
               "transport: `{}` was given, but it moves rows of the host's "
               "memory, and a run on a device is one process whose rows stay "
               "on the device. Use the transport `loop`, or run on the CPU.",
               transport->name());
  }
  ThrowError(ErrorKind::kConfig,
             "transport: `{}` was given, but it moves the rows of whole "
             "batches, and parallel.micro_batches is {}. Use the transport "
             "`loop`, or micro_batches = 1.",
             transport->name(), config.micro_batches);
}

bool LayerExchanges::RowsTravel() const {
  return executor_.memory().is_host() && config_.micro_batches == 1;
}

std::unique_ptr<Exchange> LayerExchanges::Make(kernels::Rounding rounding) {
  const size_t layer = made_++;
  std::unique_ptr<Exchange> exchange = MakePlain(rounding);
  return decorator_ ? decorator_(layer, std::move(exchange))
                    : std::move(exchange);
}

std::unique_ptr<Exchange> LayerExchanges::MakePlain(
    kernels::Rounding rounding) {
  if (transport_ == nullptr) {
    return std::make_unique<LocalExchange>(config_.topology.experts, rounding,
                                           executor_);
  }
  Conservation& conservation = conservation_.emplace_back(
      transport_->local_ranks(), config_.topology.ranks);
  const auto layer = static_cast<int>(conservation_.size()) - 1;
  const ExchangeSetup setup = {.topology = config_.topology,
                               .options = config_.options,
                               .dispatch_units = config_.dispatch_units,
                               .rounding = rounding,
                               .transport = *transport_,
                               .executor = executor_,
                               .share = &share_};
  if (!RowsTravel()) {
    return std::make_unique<IndexedExchange>(setup, layer, spared_);
  }
  return std::make_unique<RankedExchange>(setup, layer, conservation);
}

transport::Counters LayerExchanges::TakeCounters() {
  transport::Counters counters = transport_->TakeCounters();
  for (size_t i = 0; i < spared_.bytes.size(); ++i) {
    counters.bytes.data()[i] += spared_.bytes.data()[i];
  }
  counters.messages += std::exchange(spared_.messages, 0);
  spared_.bytes.SetZero();
  return counters;
}

void LayerExchanges::CheckConservation() {
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

/// All processes come here with the same arguments, because they have the same
/// sums.
void LayerExchanges::ReportLoss(size_t layer, size_t source) {
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
             transport_->step(), transport::Describe(operation), source,
             DigestToHex(*at));
}

}  // namespace isoloss::expert_parallel
