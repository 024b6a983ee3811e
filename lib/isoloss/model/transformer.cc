#include "isoloss/model/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/kernels/embedding.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/announce.h"
#include "isoloss/model/block.h"
#include "isoloss/model/layer_context.h"
#include "isoloss/model/norm.h"

namespace isoloss::model {
namespace {

using precision::GemmRole;

void CheckEnds(std::span<const size_t> ends, size_t tokens, const char* what) {
  const bool ascending =
      std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) ==
      ends.end();
  if (ends.empty() || ends.front() == 0 || ends.back() != tokens ||
      !ascending) {
    ThrowError(ErrorKind::kShape,
               "Transformer::Forward: {} has {} entries and ends at {}, but "
               "it must ascend from above 0 to the batch's {} tokens. Give "
               "the end of each once.",
               what, ends.size(), ends.empty() ? 0 : ends.back(), tokens);
  }
}

void CheckBatch(const ModelConfig& config, const TokenBatch& batch) {
  const size_t tokens = batch.tokens.size();
  if (tokens == 0 || batch.labels.size() != tokens ||
      batch.positions.size() != tokens) {
    ThrowError(ErrorKind::kShape,
               "Transformer::Forward: {} tokens, {} labels and {} positions "
               "were given, but they must be equally many and at least one. "
               "Pass spans of one batch.",
               tokens, batch.labels.size(), batch.positions.size());
  }
  CheckEnds(batch.document_ends, tokens, "document_ends");
  CheckEnds(batch.sequence_ends, tokens, "sequence_ends");
  for (size_t t = 0; t < tokens; ++t) {
    const int32_t id = batch.tokens[t];
    if (id < 0 || static_cast<size_t>(id) >= config.vocab_size) {
      ThrowError(ErrorKind::kShape,
                 "Transformer::Forward: token {} is {}, but vocab_size is {}. "
                 "Use a corpus whose tokens fit the model.",
                 t, id, config.vocab_size);
    }
    if (batch.positions[t] < 0) {
      ThrowError(ErrorKind::kShape,
                 "Transformer::Forward: position {} is {}, but positions "
                 "count from 0. Restart them at 0 with every document.",
                 t, batch.positions[t]);
    }
  }
}

}  // namespace

struct Transformer::Impl {
  /// Without a mesh, the model is on one rank.
  Impl(const ModelConfig& config, const precision::Recipe& recipe,
       Executor& executor, expert_parallel::Mesh* mesh,
       std::span<const precision::Recipe> other_phases)
      : own_mesh(mesh != nullptr ? nullptr
                                 : std::make_unique<expert_parallel::Mesh>(
                                       config.num_experts, executor)),
        context(config, recipe, executor, mesh != nullptr ? *mesh : *own_mesh,
                other_phases),
        embedding(context.graph.ParameterIndex("tok_embeddings.weight")),
        norm(context, "norm.weight"),
        head(context, "lm_head"),
        tokens_per_expert(config.n_moe_layers(), config.num_experts) {
    for (size_t layer = 0; layer < config.n_layers; ++layer) {
      TransformerBlock& block =
          blocks.emplace_back(context, layer, block_scratch);
      if (block.moe() != nullptr) moe_layers.push_back(block.moe());
    }
  }

  /// Returns the input of block `layer`: the embedding or the output of the
  /// block below.
  MatrixView<const float> BlockInput(size_t layer) const {
    return layer == 0 ? embedded.view() : block_outputs[layer - 1];
  }

  std::span<float> LossesOfShare() {
    return std::span(token_losses).last(logits.rows());
  }

  double Forward();
  void Backward();
  void BackwardHead();
  void BackwardEmbedding();

  std::unique_ptr<expert_parallel::Mesh> own_mesh;
  LayerContext context;
  size_t embedding;  // place of tok_embeddings.weight in a ParameterSet
  TransformerBlock::Scratch block_scratch{context.memory()};
  std::deque<TransformerBlock> blocks;  // never moved: layers hold references
  std::vector<MixtureOfExperts*> moe_layers;
  RmsNorm norm;
  Linear head;

  // The following members belong to the last Forward.
  Matrix<float> embedded{context.memory()};            // [T, D]
  std::vector<MatrixView<const float>> block_outputs;  // [layers]
  Matrix<float> normalised{context.memory()};          // [T, D]
  // [T, V]; Backward turns it into its gradient
  Matrix<float> logits{context.memory()};
  std::vector<float> token_losses;    // [T of the shares so far]
  Matrix<int64_t> tokens_per_expert;  // [MoE layers, E]
  size_t counted_labels = 0;
  bool ready_for_backward = false;

  Matrix<float> dx{context.memory()};           // [T, D]
  Matrix<float> dnormalised{context.memory()};  // [T, D]
};

double Transformer::Impl::Forward() {
  const TokenBatch& batch = context.batch;
  const size_t tokens = batch.tokens.size();
  const ModelConfig& config = context.config;
  const auto [first, last] =
      std::minmax_element(batch.positions.begin(), batch.positions.end());
  context.rope.Reach(static_cast<size_t>(*last) + 1);

  embedded.ResizeUninitialized(tokens, config.dim);
  kernels::GatherRows(context.Weight(embedding), batch.tokens, embedded.view(),
                      context.executor);
  kernels::Cast(embedded.view(), context.rounding, embedded.view(),
                context.executor);
  context.TapOutput("tok_embeddings", "", embedded.view());
  block_outputs.clear();
  for (size_t layer = 0; layer < blocks.size(); ++layer) {
    block_outputs.push_back(blocks[layer].Forward(BlockInput(layer)));
  }
  for (size_t layer = 0; layer < moe_layers.size(); ++layer) {
    const auto counts = moe_layers[layer]->exchange().tokens_per_expert();
    std::copy(counts.begin(), counts.end(), tokens_per_expert.Row(layer));
  }

  normalised.ResizeUninitialized(tokens, config.dim);
  norm.Forward(BlockInput(blocks.size()), normalised.view());
  context.TapOutput("norm", "", normalised.view());
  logits.ResizeUninitialized(tokens, config.vocab_size);
  head.QueueForward(normalised.view(), context.SequenceLeaves(),
                    context.rounding, logits.view());
  context.gemms.Run();

  if (context.mesh.share().index == 0) token_losses.clear();
  token_losses.resize(token_losses.size() + tokens);
  kernels::CrossEntropy(logits.view(), batch.labels, 0.0f, context.rounding,
                        LossesOfShare(), MatrixView<float>(), context.executor);
  if (context.tap != nullptr) {
    Announce({.module = "loss",
              .values = {LossesOfShare().data(), tokens, 1},
              .rows = context.RowsInBatch(context.SequenceLeaves())},
             kHostMemory, *context.tap);
  }
  return expert_parallel::Sum(context.mesh,
                              kernels::SumOfTokens(token_losses)) /
         static_cast<double>(counted_labels);
}

void Transformer::Impl::Backward() {
  dx.ResizeUninitialized(embedded.rows(), embedded.cols());
  BackwardHead();
  for (size_t layer = blocks.size(); layer-- > 0;) {
    blocks[layer].Backward(BlockInput(layer), dx.view());
  }
  BackwardEmbedding();
}

/// Computes the gradients from the logits to the residual stream after the last
/// block.
void Transformer::Impl::BackwardHead() {
  // The kernel computes the losses once more, with the same values.
  const auto grad_scale =
      static_cast<float>(1.0 / static_cast<double>(counted_labels));
  kernels::CrossEntropy(logits.view(), context.batch.labels, grad_scale,
                        context.rounding, LossesOfShare(), logits.view(),
                        context.executor);
  dnormalised.ResizeUninitialized(dx.rows(), dx.cols());
  head.QueueBackward(normalised.view(), logits.view(), context.SequenceLeaves(),
                     dnormalised.view());
  context.gemms.Run();
  context.TapGradient("norm", "", dnormalised.view());
  norm.Backward(BlockInput(blocks.size()), dnormalised.view(), dx.view());
}

void Transformer::Impl::BackwardEmbedding() {
  context.TapGradient("tok_embeddings", "", dx.view());
  Matrix<float>& dtable = context.gradients->parameters()[embedding].values;
  // A tied table already holds the head's gradient, to which the embedding's is
  // added.
  if (!context.config.tied_embeddings) dtable.SetZero();
  kernels::AddEmbeddingGradient(context.batch.tokens,
                                context.batch.sequence_ends, dx.view(),
                                dtable.view(), context.executor);
}

Transformer::Transformer(const ModelConfig& config,
                         const precision::Recipe& recipe, Executor& executor) {
  Validate(config, "Transformer:");
  impl_ = std::make_unique<Impl>(config, recipe, executor, nullptr,
                                 std::span<const precision::Recipe>());
}

Transformer::Transformer(const ModelConfig& config,
                         const precision::Recipe& recipe, Executor& executor,
                         expert_parallel::Mesh& mesh,
                         std::span<const precision::Recipe> other_phases) {
  Validate(config, "Transformer:");
  impl_ = std::make_unique<Impl>(config, recipe, executor, &mesh, other_phases);
}

Transformer::~Transformer() = default;

const precision::ResolvedRecipe& Transformer::recipe() const {
  return impl_->context.recipe;
}

void Transformer::SetStep(const StepKey& key) { impl_->context.key = key; }

void Transformer::RoundWeightGradients(ParameterSet& gradients) const {
  const LayerContext& context = impl_->context;
  const kernels::Rounding rounding = context.recipe.recipe().weight_gradients;
  if (rounding == kernels::Rounding::kFp32) return;
  for (const GemmSite& site : context.graph.sites) {
    Matrix<float>& values = gradients.parameters()[site.parameter].values;
    kernels::Cast(values.view(), rounding, values.view(), context.executor);
  }
}

AmaxHistory& Transformer::amax_history() { return impl_->context.amax; }

void Transformer::LoadWeights(const ParameterSet& master) {
  impl_->context.LoadWeights(master);
}

void Transformer::AnnounceWeights(const ParameterSet& master,
                                  ParameterSet& rounded, TapSink& sink) const {
  const LayerContext& context = impl_->context;
  for (size_t i = 0; i < master.parameters().size(); ++i) {
    const Parameter& parameter = master.parameters()[i];
    const MatrixView<float> values = rounded.parameters()[i].values.view();
    kernels::Cast(parameter.values.view(), context.rounding, values,
                  context.executor);
    const GemmWeight* weight = context.gemm_weights.Find(i);
    Tensor tensor;
    std::vector<kernels::OperandState> forward;
    std::vector<kernels::OperandState> backward;
    if (weight != nullptr) {
      forward = weight->StatesFor(GemmRole::kFprop, context.key, context.amax);
      backward = weight->StatesFor(GemmRole::kDgrad, context.key, context.amax);
      tensor = {.rowwise = weight->QuantizationFor(GemmRole::kFprop),
                .columnwise = weight->QuantizationFor(GemmRole::kDgrad),
                .rowwise_states = forward,
                .columnwise_states = backward};
    }
    AnnounceParameter(TensorKind::kWeight, parameter, values, context.mesh,
                      sink, tensor);
  }
}

void Transformer::LoadExpertBias(MatrixView<const float> expert_bias) {
  const auto& layers = impl_->moe_layers;
  const size_t experts = impl_->context.config.num_experts;
  if (expert_bias.rows() != layers.size() ||
      (!layers.empty() && expert_bias.cols() != experts)) {
    ThrowError(ErrorKind::kShape,
               "Transformer::LoadExpertBias: biases are {}x{}, but the model "
               "has {} MoE layers of {} experts. Pass one row per MoE layer.",
               expert_bias.rows(), expert_bias.cols(), layers.size(), experts);
  }
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer]->LoadBias({expert_bias.Row(layer), experts});
  }
}

void Transformer::SetRouting(const RoutingSource* routing) {
  impl_->context.routing = routing;
}

void Transformer::SetRoutingEdit(RoutingEdit edit) {
  impl_->context.edit_routing = std::move(edit);
}

void Transformer::SetGemmEngine(GemmEngine engine) {
  impl_->context.gemms.SetEngine(std::move(engine));
}

double Transformer::Forward(const TokenBatch& batch, TapSink* tap) {
  CheckBatch(impl_->context.config, batch);
  impl_->counted_labels = batch.counted_labels;
  if (batch.counted_labels == 0) {
    impl_->counted_labels = static_cast<size_t>(
        expert_parallel::Sum(impl_->context.mesh, CountedLabels(batch.labels)));
  }
  if (impl_->counted_labels == 0) {
    ThrowError(ErrorKind::kShape,
               "Transformer::Forward: none of {} labels counts (all are {}), "
               "but the loss is a mean over labels that do. Give a batch with "
               "at least one label.",
               batch.labels.size(), kernels::kIgnoredLabel);
  }
  impl_->context.Begin(batch, tap, nullptr);
  if (impl_->context.mesh.share().index == 0) impl_->context.amax.BeginPass();
  const double loss = impl_->Forward();
  impl_->ready_for_backward = true;
  return loss;
}

void Transformer::Backward(const TokenBatch& batch, ParameterSet& gradients,
                           TapSink* tap) {
  if (!impl_->ready_for_backward ||
      batch.tokens.size() != impl_->embedded.rows()) {
    ThrowError(ErrorKind::kShape,
               "Transformer::Backward: a batch of {} tokens was given, but the "
               "last Forward {}. Call Forward with the same batch just before "
               "every Backward.",
               batch.tokens.size(),
               impl_->ready_for_backward
                   ? fmt::format("had {}", impl_->embedded.rows())
                   : std::string("is missing or used up"));
  }
  impl_->ready_for_backward = false;
  impl_->context.Begin(batch, tap, &gradients);
  impl_->Backward();
}

std::span<const float> Transformer::token_losses() const {
  return impl_->token_losses;
}

MatrixView<const int64_t> Transformer::tokens_per_expert() const {
  return impl_->tokens_per_expert.cview();
}

HostRows<int32_t> Transformer::expert_ids(size_t moe_layer) const {
  return {impl_->moe_layers[moe_layer]->expert_ids(), kHostMemory};
}

const expert_parallel::DispatchCounts& Transformer::dispatch_counts(
    size_t moe_layer) const {
  return impl_->moe_layers[moe_layer]->exchange().counts();
}

std::vector<RouterFigures> Transformer::MergeRouterFigures() const {
  std::vector<RouterSums::Totals> layers;
  for (const MixtureOfExperts* layer : impl_->moe_layers) {
    layers.push_back(layer->router_figures());
  }
  return model::MergeRouterFigures(layers, impl_->context.mesh);
}

int64_t Transformer::quantized_gemms() const {
  return impl_->context.gemms.quantized();
}
int64_t Transformer::gemms() const { return impl_->context.gemms.executed(); }
int64_t Transformer::quantized_gemms_per_step() const {
  return impl_->context.quantized_gemms_per_step;
}
int64_t Transformer::gemms_per_step() const {
  return impl_->context.gemms_per_step;
}

}  // namespace isoloss::model
