#include "isoloss/estimators/speed_model.h"

#include <algorithm>
#include <utility>

#include "isoloss/base/error.h"

namespace isoloss::estimators {
namespace {

constexpr double kBitsOfAByte = 8;
/// An operand that is quantised is read in BF16.
constexpr double kBytesRead = 2;

bool IsQuantized(double bits) { return bits < kHighPrecisionBits; }

/// Returns the bytes that move for each value when an operand is quantised.
double CastBytes(double bits) {
  return IsQuantized(bits) ? kBytesRead + bits / kBitsOfAByte : 0;
}

double SavedBytes(double bits) { return kBytesRead - bits / kBitsOfAByte; }

/// Returns the probability that none of `draws` without replacement from `all`
/// is one of `some`.
double ChanceOfNone(size_t all, size_t some, size_t draws) {
  double chance = 1;
  for (size_t i = 0; i < draws; ++i) {
    if (all - some <= i) return 0;
    chance *=
        static_cast<double>(all - some - i) / static_cast<double>(all - i);
  }
  return chance;
}

}  // namespace

const ProductWork* ModelWork::Find(const std::string& kind,
                                   size_t product) const {
  const auto found = std::ranges::find(kinds, kind, &KindWork::kind);
  return found == kinds.end() ? nullptr : &found->products.at(product);
}

double ModelWork::Flops() const {
  double flops = 0;
  for (const KindWork& kind : kinds) {
    for (const ProductWork& product : kind.products) flops += product.flops;
  }
  return flops;
}

double ModelWork::OperandBytes() const {
  double elements = 0;
  for (const KindWork& kind : kinds) {
    for (const ProductWork& product : kind.products) {
      elements += product.left_elements + product.right_elements;
    }
  }
  return kBytesRead * elements;
}

ModelShare ShareOfModel(const ModelWork& model,
                        const QuantizedProduct& product) {
  ModelShare share{.model = model.name};
  const ProductWork* work = model.Find(product.kind, product.role);
  if (work == nullptr) return share;
  share.flops = work->flops / model.Flops();
  share.bytes_saved =
      (work->left_elements * SavedBytes(product.format.left_bits) +
       work->right_elements * SavedBytes(product.format.right_bits)) /
      model.OperandBytes();
  return share;
}

SpeedModel::SpeedModel(ModelWork work, const Hardware& hardware,
                       const SpeedAssumptions& assumptions)
    : work_(std::move(work)), hardware_(hardware), assumptions_(assumptions) {
  const PublishedRun& fitted = kPublishedRuns.front();
  const double known = GemmSeconds() + ExchangeSeconds(fitted.dispatch);
  rest_ = 1 / fitted.tokens_per_second - known;
  if (rest_ < 0) {
    ThrowError(ErrorKind::kConfig,
               "speed model: products and exchange of {} take {:.3g} ms a "
               "token, but the published run takes {:.3g} ms in all. Assume a "
               "larger share of the peak.",
               work_.name, 1e3 * known, 1e3 / fitted.tokens_per_second);
  }
}

double SpeedModel::FlopsPerSecond(int multiply_bits) const {
  double factor = 1;
  if (multiply_bits <= 8) factor = 2;
  if (multiply_bits <= 4) factor = 4;
  return factor * assumptions_.gemm_share * hardware_.bf16_flops;
}

double SpeedModel::GemmSeconds() const {
  return work_.Flops() / FlopsPerSecond(16);
}

double SpeedModel::ExchangeSeconds(Dispatch dispatch, Spread spread) const {
  const size_t nodes = assumptions_.expert_ranks / hardware_.ranks_per_node;
  const auto top_k = static_cast<double>(work_.top_k);
  const double remote = static_cast<double>(nodes - 1);
  double rows = top_k * remote / static_cast<double>(nodes);
  if (dispatch == Dispatch::kDeepep) {
    rows =
        spread == Spread::kOneRank
            ? remote / static_cast<double>(nodes)
            : remote * (1 - ChanceOfNone(work_.experts, work_.experts / nodes,
                                         work_.top_k));
  }
  return static_cast<double>(work_.moe_layers) * rows *
         static_cast<double>(work_.dim) * assumptions_.bytes_per_value *
         assumptions_.transfers / hardware_.network_bytes;
}

double SpeedModel::SavedSeconds(const QuantizedProduct& product) const {
  const ProductWork* work = work_.Find(product.kind, product.role);
  if (work == nullptr) return 0;
  const double gemm =
      work->flops / FlopsPerSecond(16) -
      work->flops / FlopsPerSecond(product.format.multiply_bits);
  const double bytes =
      work->left_elements * CastBytes(product.format.left_bits) +
      work->right_elements * CastBytes(product.format.right_bits);
  return gemm - bytes / (assumptions_.memory_share * hardware_.memory_bytes);
}

double SpeedModel::TokensPerSecond(Dispatch dispatch,
                                   std::span<const QuantizedProduct> products,
                                   Spread spread) const {
  double seconds = GemmSeconds() + ExchangeSeconds(dispatch, spread) + rest_;
  for (const QuantizedProduct& product : products) {
    seconds -= SavedSeconds(product);
  }
  return 1 / seconds;
}

double SpeedModel::SpeedUp(std::span<const QuantizedProduct> products) const {
  return TokensPerSecond(Dispatch::kDeepep, products) /
         TokensPerSecond(Dispatch::kDeepep, {});
}

std::vector<SpeedTry> SpeedModel::Tries() const {
  std::vector<QuantizedProduct> experts;
  for (const KindWork& kind : work_.kinds) {
    if (!kind.kind.starts_with("routed_experts")) continue;
    for (size_t product = 0; product < kProductRoles; ++product) {
      experts.push_back({kind.kind, product, kMxfp8});
    }
  }
  std::vector<SpeedTry> tries;
  for (const PublishedRun& run : kPublishedRuns) {
    const auto predict = [&](Spread spread) {
      return TokensPerSecond(
          run.dispatch,
          run.experts_mxfp8 ? experts : std::vector<QuantizedProduct>(),
          spread);
    };
    tries.push_back({.run = run,
                     .fitted = &run == kPublishedRuns.data(),
                     .predicted = predict(Spread::kRandom),
                     .predicted_one_rank = predict(Spread::kOneRank)});
  }
  return tries;
}

}  // namespace isoloss::estimators
