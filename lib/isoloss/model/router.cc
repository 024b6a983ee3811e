#include "isoloss/model/router.h"

#include <algorithm>

#include "isoloss/base/error.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/kernels/score_entropy.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {
namespace {

/// Returns how many of `ids` are not among `others`.
int64_t CountMissing(std::span<const int32_t> ids,
                     std::span<const int32_t> others) {
  return std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
    return std::find(others.begin(), others.end(), id) == others.end();
  });
}

}  // namespace

Router::Router(LayerContext& context, const std::string& name, size_t moe_layer,
               Scratch& scratch)
    : context_(context),
      name_(name),
      moe_layer_(moe_layer),
      scratch_(scratch),
      rule_(context.config.router_rule()),
      gate_(context, name + ".gate") {
  bias_.Resize(1, context.config.num_experts);
}

void Router::LoadBias(std::span<const float> bias) {
  ISOLOSS_ASSERT(bias.size() == bias_.size());
  bias_.memory().CopyFromHost(bias.data(), bias.size_bytes(), bias_.data());
}

void Router::Forward(MatrixView<const float> b) {
  const ModelConfig& c = context_.config;
  const size_t tokens = b.rows();
  logits_.ResizeUninitialized(tokens, c.num_experts);
  scores_.ResizeUninitialized(tokens, c.num_experts);
  expert_ids_.ResizeUninitialized(tokens, c.top_k);
  weights_.ResizeUninitialized(tokens, c.top_k);
  gate_.QueueForward(b, context_.TokenLeaves(), kernels::Rounding::kFp32,
                     logits_.view());
  context_.gemms.Run();

  if (c.score_function == ScoreFunction::kSigmoid) {
    kernels::ElementSigmoid(logits_.view(), scores_.view(), context_.executor);
  } else {
    kernels::RowSoftmax(logits_.view(), scores_.view(), context_.executor);
  }
  Choose();
  context_.TapOutput(name_, "scores", scores_.view());
  if (context_.tap != nullptr) {
    const HostRows<int32_t> ids(expert_ids_.view(), context_.memory());
    context_.tap->OnRouting(name_, ids.view(), context_.first_token);
  }
  context_.TapOutput(name_, "topk_weights", weights_.view());
}

void Router::Choose() {
  const RoutingSource* source = context_.routing;
  if (source == nullptr || source->IsReplay()) {
    kernels::SelectExperts(rule_, scores_.view(), {bias_.data(), bias_.size()},
                           expert_ids_.view(), context_.executor);
  }
  flips_.assign(scores_.rows(), 0);
  if (source != nullptr) ChooseBy(*source);
  kernels::CombineWeights(rule_, scores_.view(), expert_ids_.cview(),
                          weights_.view(), context_.executor);
  if (context_.edit_routing) EditChoice();
  SumFigures();
}

void Router::ChooseBy(const RoutingSource& source) {
  EditOnHost(expert_ids_, [&](MatrixView<int32_t> expert_ids) {
    kernels::ForEachRow(expert_ids.rows(), context_.executor, [&](size_t t) {
      const std::span<int32_t> ids(expert_ids.Row(t), expert_ids.cols());
      static thread_local std::vector<int32_t> own;
      own.assign(ids.begin(), ids.end());
      source.Choose(moe_layer_, context_.first_token + t, ids);
      if (source.IsReplay()) flips_[t] = CountMissing(ids, own);
    });
  });
}

void Router::EditChoice() {
  const HostRows<float> scores(scores_.view(), context_.memory());
  const HostRows<float> bias(bias_.view(), context_.memory());
  const auto edit = [&](MatrixView<int32_t> ids, MatrixView<float> weights) {
    kernels::ForEachRow(ids.rows(), context_.executor, [&](size_t t) {
      context_.edit_routing({moe_layer_,
                             context_.first_token + t,
                             {scores.view().Row(t), scores.view().cols()},
                             {bias.view().Row(0), bias.view().cols()},
                             {ids.Row(t), ids.cols()},
                             {weights.Row(t), weights.cols()}});
    });
  };
  EditOnHost(expert_ids_, [&](MatrixView<int32_t> ids) {
    EditOnHost(weights_,
               [&](MatrixView<float> weights) { edit(ids, weights); });
  });
}

void Router::SumFigures() {
  entropies_.resize(scores_.rows());
  kernels::ScoreEntropies(scores_.view(), entropies_, context_.executor);
  const HostRows<int32_t> ids(expert_ids_.view(), context_.memory());
  const bool goes_on = context_.mesh.share().index > 0;
  if (!goes_on) chosen_.clear();
  chosen_.insert(chosen_.end(), ids.view().data(),
                 ids.view().data() + expert_ids_.size());
  sums_.Begin(scores_.rows(), goes_on);
  kernels::ForEqualRuns(
      scores_.rows(), scores_.rows() / kernels::kMinRowsPerRun,
      kernels::kTokenLeaf, context_.executor, [&](size_t first, size_t count) {
        for (size_t t = first; t < first + count; ++t) {
          sums_.Add(t, context_.first_token + t, entropies_[t],
                    {ids.view().Row(t), ids.view().cols()}, flips_[t]);
        }
      });
}

void Router::Backward(MatrixView<const float> b,
                      MatrixView<const float> dweights, MatrixView<float> db) {
  const ModelConfig& c = context_.config;
  context_.TapGradient(name_, "topk_weights", dweights);
  Matrix<float>& dlogits = scratch_.dlogits;
  dlogits.ResizeUninitialized(b.rows(), c.num_experts);
  kernels::RouterScoreBackward(rule_, scores_.view(), expert_ids_.view(),
                               dweights, dlogits.view(), context_.executor);
  gate_.QueueBackward(b, dlogits.view(), context_.TokenLeaves(), db);
  context_.gemms.Run();
}

}  // namespace isoloss::model
