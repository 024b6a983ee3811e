#include "isoloss/train/batch_shares.h"

#include <fmt/format.h>

#include <bit>
#include <numeric>
#include <span>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/tree.h"
#include "isoloss/train/experiment.h"

namespace isoloss::train {
namespace {

/// Returns the ends in (begin, end], counted from `begin`.
std::vector<size_t> EndsWithin(std::span<const size_t> ends, size_t begin,
                               size_t end) {
  std::vector<size_t> within;
  for (const size_t at : ends) {
    if (at > begin && at <= end) within.push_back(at - begin);
  }
  ISOLOSS_ASSERT(!within.empty() && within.back() == end - begin);
  return within;
}

/// Computes sum = addend + sum.
void AddBefore(const model::ParameterSet& addend, model::ParameterSet& sum,
               Executor& executor) {
  for (size_t i = 0; i < sum.parameters().size(); ++i) {
    const MatrixView<float> values = sum.parameters()[i].values.view();
    kernels::Add(addend.parameters()[i].values.view(), values,
                 kernels::Rounding::kFp32, values, executor);
  }
}

}  // namespace

void CheckMicroBatches(const config::Reader& fields,
                       const Experiment& experiment) {
  const ParallelConfig& parallel = experiment.parallel;
  const size_t count = parallel.micro_batches;
  if (count == 1) return;
  const auto require = [&](bool holds, const std::string& rule) {
    if (holds) return;
    fields.Fail("micro_batches", fmt::format("is {}, but {}", count, rule));
  };
  require(parallel.transport == "loop",
          fmt::format("transport `{}` moves the rows of whole batches. Use "
                      "transport = \"loop\", or 1.",
                      parallel.transport));
  require(!experiment.model.tied_embeddings,
          "model.tied_embeddings is true, and the gradients of head and "
          "embedding must be added apart. Untie them or use 1.");
  const auto require_node = [&](size_t total, const std::string& what) {
    require(total % count == 0 && std::has_single_bit(total / count),
            fmt::format("each must get a power of two of the {} {} (else their "
                        "sum is no node of the tree over a whole batch). "
                        "Correct either.",
                        total, what));
  };
  const size_t sequences = experiment.train.sequences_per_batch;
  const size_t tokens = sequences * experiment.data.sequence_length;
  require_node(sequences, "train.sequences_per_batch");
  require(tokens % (count * kernels::kTokenLeaf) == 0,
          fmt::format("each must get a multiple of {} of the {} tokens of a "
                      "batch. Change data.sequence_length or use fewer.",
                      kernels::kTokenLeaf, tokens));
  require_node(tokens / kernels::kTokenLeaf,
               fmt::format("leaves of {} tokens of a batch (their number "
                           "follows from data.sequence_length)",
                           kernels::kTokenLeaf));
  if (experiment.model.n_moe_layers() > 0) {
    require_node(parallel.dispatch_units, "parallel.dispatch_units");
  }
}

std::string TakeWholeBatches(Experiment& experiment) {
  const bool changes = experiment.parallel.shares() > 1;
  experiment.parallel.whole_batches = true;
  if (!changes) return "";
  return fmt::format(
      "parallel.micro_batches is {}, but each step is computed in one share, "
      "because tensors of whole batches are looked at. No bit depends on it.",
      experiment.parallel.micro_batches);
}

size_t SharesOf(size_t micro_batches, size_t sequences) {
  return std::gcd(micro_batches, sequences);
}

model::TokenBatch ShareOf(const model::TokenBatch& batch,
                          const expert_parallel::BatchShare& share,
                          ShareEnds& ends) {
  const size_t all = batch.tokens.size();
  ISOLOSS_ASSERT(all % share.count == 0);
  const size_t begin = share.Begin(all);
  const size_t tokens = share.End(all) - begin;
  ends = {EndsWithin(batch.document_ends, begin, begin + tokens),
          EndsWithin(batch.sequence_ends, begin, begin + tokens)};
  return {.tokens = batch.tokens.subspan(begin, tokens),
          .labels = batch.labels.subspan(begin, tokens),
          .positions = batch.positions.subspan(begin, tokens),
          .document_ends = ends.of_documents,
          .sequence_ends = ends.of_sequences,
          .counted_labels = batch.counted_labels};
}

void ForEachShare(
    const model::TokenBatch& batch, expert_parallel::Mesh& mesh,
    const std::function<void(const model::TokenBatch& share)>& visit) {
  const size_t count =
      SharesOf(mesh.config().micro_batches, batch.sequence_ends.size());
  if (count == 1) return visit(batch);
  model::TokenBatch whole = batch;
  whole.counted_labels =
      static_cast<size_t>(model::CountedLabels(batch.labels));
  ShareEnds ends;
  for (size_t index = 0; index < count; ++index) {
    mesh.BeginShare({index, count});
    visit(ShareOf(whole, mesh.share(), ends));
  }
  mesh.BeginShare({});
}

void GradientFold::Run(
    const model::TokenBatch& batch, expert_parallel::Mesh& mesh,
    const std::function<void(const model::TokenBatch& share,
                             model::ParameterSet& gradients)>& differentiate) {
  using Set = model::ParameterSet*;
  std::vector<Set> free;
  for (model::ParameterSet& set : spare_) free.push_back(&set);
  // A sum takes the place of its right addend. The rightmost set is the total.
  const auto add = [&](Set left, Set right) {
    AddBefore(*left, *right, executor_);
    free.push_back(left);
    return right;
  };
  ISOLOSS_ASSERT(mesh.config().micro_batches == 1 ||
                 std::has_single_bit(batch.sequence_ends.size() /
                                     mesh.config().micro_batches));
  kernels::AlignedTree<Set, decltype(add)> tree(add);
  ForEachShare(batch, mesh, [&](const model::TokenBatch& share) {
    Set set = &total_;
    if (mesh.share().index + 1 < mesh.share().count) {
      if (free.empty()) {
        free.push_back(
            &spare_.emplace_back(config_, mesh.experts(), executor_.memory()));
      }
      set = free.back();
      free.pop_back();
    }
    differentiate(share, *set);
    tree.Push(set);
  });
  tree.Finish(nullptr);
}

}  // namespace isoloss::train
