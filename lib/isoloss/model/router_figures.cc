#include "isoloss/model/router_figures.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "isoloss/base/digest.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/kernels/elementary.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"

namespace isoloss::model {
namespace {

/// Returns the digest of one token's choice.
uint64_t RoutingDigest(size_t token, std::span<const int32_t> expert_ids) {
  const std::array<uint64_t, 2> words = {
      token, DigestOf(expert_ids.data(), expert_ids.size_bytes())};
  return DigestOf(words.data(), sizeof(words));
}

}  // namespace

void RouterSums::Begin(size_t tokens, bool goes_on) {
  if (!goes_on) leaves_.clear();
  first_leaf_ = leaves_.size();
  leaves_.resize(first_leaf_ +
                 (tokens + kernels::kTokenLeaf - 1) / kernels::kTokenLeaf);
}

void RouterSums::Add(size_t token, size_t global_token, double entropy,
                     std::span<const int32_t> expert_ids, int64_t flips) {
  Totals& leaf = leaves_[first_leaf_ + token / kernels::kTokenLeaf];
  leaf.entropy += entropy;
  leaf.digest += RoutingDigest(global_token, expert_ids);
  leaf.flips += flips;
  ++leaf.tokens;
}

RouterSums::Totals RouterSums::Sum() const {
  Totals totals;
  for (const Totals& leaf : leaves_) {
    totals.digest += leaf.digest;
    totals.flips += leaf.flips;
    totals.tokens += leaf.tokens;
  }
  totals.entropy = kernels::AlignedTreeSum(
      0, leaves_.size(), [&](size_t leaf) { return leaves_[leaf].entropy; });
  return totals;
}

std::vector<RouterFigures> MergeRouterFigures(
    std::span<const RouterSums::Totals> layers, expert_parallel::Mesh& mesh) {
  using Totals = RouterSums::Totals;
  static_assert(std::is_trivially_copyable_v<Totals>);
  static_assert(sizeof(Totals) % sizeof(int32_t) == 0);
  std::vector<int32_t> words(layers.size_bytes() / sizeof(int32_t));
  if (!layers.empty()) {
    std::memcpy(words.data(), layers.data(), layers.size_bytes());
    words = expert_parallel::Gather(mesh, words);
  }
  std::vector<Totals> all(mesh.processes() * layers.size());
  if (!all.empty()) {
    std::memcpy(static_cast<void*>(all.data()), words.data(),
                all.size() * sizeof(Totals));
  }

  std::vector<RouterFigures> figures(layers.size());
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    const auto of = [&](size_t process) -> const Totals& {
      return all[process * layers.size() + layer];
    };
    int64_t tokens = 0;
    for (size_t process = 0; process < mesh.processes(); ++process) {
      figures[layer].digest += of(process).digest;
      figures[layer].flips += of(process).flips;
      tokens += of(process).tokens;
    }
    figures[layer].entropy_nats =
        kernels::AlignedTreeSum(
            0, mesh.processes(),
            [&](size_t process) { return of(process).entropy; }) /
        static_cast<double>(tokens);
    // The entropy of a single expert is zero, and rounding may make it
    // negative.
    if (figures[layer].entropy_nats < 0) figures[layer].entropy_nats = 0;
  }
  return figures;
}

}  // namespace isoloss::model
