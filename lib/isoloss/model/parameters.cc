#include "isoloss/model/parameters.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/base/nearest_name.h"

namespace isoloss::model {
namespace {

Parameter MakeParameter(std::string name, std::vector<size_t> shape) {
  const size_t rows = std::accumulate(shape.begin(), shape.end() - 1, size_t{1},
                                      std::multiplies<>());
  Matrix<float> values(rows, shape.back());
  return {.name = std::move(name),
          .shape = std::move(shape),
          .values = std::move(values)};
}

/// Collects parameters whose names share a prefix.
class Builder {
 public:
  Builder(std::string prefix, std::vector<Parameter>& out)
      : prefix_(std::move(prefix)), out_(out) {}

  void Add(const char* name, std::vector<size_t> shape) {
    out_.push_back(MakeParameter(prefix_ + name, std::move(shape)));
  }
  /// One [rows, columns] matrix for each expert of the shard.
  void AddOfExperts(const char* name, expert_parallel::ExpertShard shard,
                    std::vector<size_t> shape) {
    const size_t of_one = shape[0] * shape[1];
    Add(name, {shard.count, shape[0], shape[1]});
    out_.back().of_experts = true;
    out_.back().first_element = shard.first * of_one;
  }
  void AddFeedForward(const std::string& name, size_t dim, size_t hidden) {
    Add((name + ".w1.weight").c_str(), {hidden, dim});
    Add((name + ".w2.weight").c_str(), {dim, hidden});
    Add((name + ".w3.weight").c_str(), {hidden, dim});
  }

 private:
  std::string prefix_;
  std::vector<Parameter>& out_;
};

void AddAttention(const ModelConfig& c, Builder& layer) {
  const size_t query_width = c.n_heads * c.qk_head_dim();
  if (c.q_lora_rank == 0) {
    layer.Add("attention.wq.weight", {query_width, c.dim});
  } else {
    layer.Add("attention.wq_a.weight", {c.q_lora_rank, c.dim});
    layer.Add("attention.q_norm.weight", {c.q_lora_rank});
    layer.Add("attention.wq_b.weight", {query_width, c.q_lora_rank});
  }
  layer.Add("attention.wkv_a.weight",
            {c.kv_lora_rank + c.qk_rope_head_dim, c.dim});
  layer.Add("attention.kv_norm.weight", {c.kv_lora_rank});
  layer.Add("attention.wkv_b.weight",
            {c.n_heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank});
  layer.Add("attention.wo.weight", {c.dim, c.n_heads * c.v_head_dim});
}

void AddMoe(const ModelConfig& c, expert_parallel::ExpertShard shard,
            Builder& layer) {
  const size_t hidden = c.moe_hidden_dim;
  layer.AddOfExperts("moe.routed_experts.inner_experts.w1_EFD", shard,
                     {hidden, c.dim});
  layer.AddOfExperts("moe.routed_experts.inner_experts.w2_EDF", shard,
                     {c.dim, hidden});
  layer.AddOfExperts("moe.routed_experts.inner_experts.w3_EFD", shard,
                     {hidden, c.dim});
  layer.Add("moe.router.gate.weight", {c.num_experts, c.dim});
  if (c.num_shared_experts > 0) {
    layer.AddFeedForward("moe.shared_experts", c.dim,
                         hidden * c.num_shared_experts);
  }
}

}  // namespace

ParameterSet::ParameterSet(const ModelConfig& config)
    : ParameterSet(config, {0, config.num_experts}) {}

ParameterSet::ParameterSet(const ModelConfig& config,
                           expert_parallel::ExpertShard experts) {
  Builder root("", parameters_);
  root.Add("tok_embeddings.weight", {config.vocab_size, config.dim});
  for (size_t n = 0; n < config.n_layers; ++n) {
    Builder layer("layers." + std::to_string(n) + ".", parameters_);
    AddAttention(config, layer);
    layer.Add("attention_norm.weight", {config.dim});
    layer.Add("ffn_norm.weight", {config.dim});
    if (config.IsMoeLayer(n)) {
      AddMoe(config, experts, layer);
    } else {
      layer.AddFeedForward("feed_forward", config.dim, config.dense_hidden_dim);
    }
  }
  root.Add("norm.weight", {config.dim});
  if (!config.tied_embeddings) {
    root.Add("lm_head.weight", {config.vocab_size, config.dim});
  }
}

size_t ParameterSet::IndexOf(std::string_view name) const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].name == name) return i;
  }
  std::vector<std::string> known;
  for (const Parameter& parameter : parameters_)
    known.push_back(parameter.name);
  ThrowError(ErrorKind::kConfig,
             "ParameterSet: `{}` was asked for, but none of this model's {} "
             "parameters has that name.{}",
             name, known.size(), DidYouMean(name, known));
}

size_t ParameterSet::value_count() const {
  size_t count = 0;
  for (const Parameter& parameter : parameters_)
    count += parameter.values.size();
  return count;
}

uint64_t ParameterSet::Digest() const {
  isoloss::Digest digest;
  for (const Parameter& parameter : parameters_) {
    digest.Update(parameter.name);
    for (const uint64_t extent : parameter.shape) {
      digest.Update(&extent, sizeof(extent));
    }
    digest.Update(parameter.values.data(),
                  parameter.values.size() * sizeof(float));
  }
  return digest.Value();
}

void ParameterSet::SetZero() {
  for (Parameter& parameter : parameters_) parameter.values.SetZero();
}

}  // namespace isoloss::model
