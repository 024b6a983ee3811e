#include "isoloss/step_checks/step_inputs.h"

#include <utility>

#include "isoloss/model/graph.h"

namespace isoloss::step_checks {
namespace {

class Lister {
 public:
  explicit Lister(const StepInputs& inputs)
      : inputs_(inputs), config_(inputs.config), tokens_(inputs.tokens()) {}

  std::vector<ExpectedTensor> List() {
    AddParameters();
    const size_t dim = config_.dim;
    AddBoth("tok_embeddings", dim);
    for (size_t n = 0; n < config_.n_layers; ++n) AddBlock(n);
    AddBoth("norm", dim);
    AddLinear("lm_head", tokens_, dim, config_.vocab_size);
    Add("loss_output", tokens_, 1);
    return std::move(tensors_);
  }

 private:
  void Add(const std::string& name, size_t rows, size_t cols) {
    tensors_.push_back({name, rows, cols});
  }
  /// Adds a module's output and the gradient of that output.
  void AddBoth(const std::string& module, size_t cols) {
    Add(module + "_output", tokens_, cols);
    Add(module + "_gradient", tokens_, cols);
  }
  void AddLinear(const std::string& site, size_t rows, size_t in, size_t out) {
    Add(site + "_activation", rows, in);
    Add(site + "_output", rows, out);
    Add(site + "_gradient", rows, out);
    Add(site + "_dgrad", rows, in);
  }
  void AddFeedForward(const std::string& name, size_t rows, size_t hidden) {
    AddLinear(name + ".w1", rows, config_.dim, hidden);
    AddLinear(name + ".w3", rows, config_.dim, hidden);
    AddLinear(name + ".w2", rows, hidden, config_.dim);
  }

  void AddParameters() {
    for (const model::ParameterSpec& parameter : model::ParametersOf(config_)) {
      for (const char* kind : {"_weight", "_wgrad", "_parameter", "_update"}) {
        Add(parameter.module + kind, parameter.groups() * parameter.rows(),
            parameter.cols());
      }
    }
  }

  void AddBlock(size_t layer) {
    const std::string name = "layers." + std::to_string(layer);
    AddBoth(name, config_.dim);
    AddBoth(name + ".attention_norm", config_.dim);
    AddBoth(name + ".ffn_norm", config_.dim);
    Add(name + ".attention_residual_output", tokens_, config_.dim);
    AddAttention(name + ".attention");
    if (config_.IsMoeLayer(layer)) {
      AddMoe(name + ".moe", layer - config_.n_dense_layers);
    } else {
      AddFeedForward(name + ".feed_forward", tokens_, config_.dense_hidden_dim);
    }
  }

  void AddAttention(const std::string& name) {
    const model::ModelConfig& c = config_;
    const size_t queries = c.n_heads * c.qk_head_dim();
    const size_t values = c.n_heads * c.v_head_dim;
    if (c.q_lora_rank == 0) {
      AddLinear(name + ".wq", tokens_, c.dim, queries);
    } else {
      AddLinear(name + ".wq_a", tokens_, c.dim, c.q_lora_rank);
      Add(name + ".q_norm_output", tokens_, c.q_lora_rank);
      AddLinear(name + ".wq_b", tokens_, c.q_lora_rank, queries);
    }
    AddLinear(name + ".wkv_a", tokens_, c.dim,
              c.kv_lora_rank + c.qk_rope_head_dim);
    Add(name + ".kv_norm_output", tokens_, c.kv_lora_rank);
    AddLinear(name + ".wkv_b", tokens_, c.kv_lora_rank,
              c.n_heads * c.qk_nope_head_dim + values);
    Add(name + ".q_pe_rotated_output", tokens_, c.n_heads * c.qk_rope_head_dim);
    Add(name + ".k_pe_rotated_output", tokens_, c.qk_rope_head_dim);
    Add(name + ".inner_attention_output", tokens_, values);
    Add(name + ".inner_attention.q_gradient", tokens_, queries);
    Add(name + ".inner_attention.k_gradient", tokens_, queries);
    AddLinear(name + ".wo", tokens_, values, c.dim);
  }

  void AddMoe(const std::string& name, size_t moe_layer) {
    const model::ModelConfig& c = config_;
    const size_t rows = inputs_.expert_rows[moe_layer].begins.back();
    AddLinear(name + ".router.gate", tokens_, c.dim, c.num_experts);
    Add(name + ".router.scores_output", tokens_, c.num_experts);
    AddBoth(name + ".router.topk_weights", c.top_k);
    AddFeedForward(name + ".routed_experts", rows, c.moe_hidden_dim);
    Add(name + ".routed_experts_output", tokens_, c.dim);
    if (c.num_shared_experts > 0) {
      AddFeedForward(name + ".shared_experts", tokens_,
                     c.num_shared_experts * c.moe_hidden_dim);
      Add(name + "_output", tokens_, c.dim);
    }
  }

  const StepInputs& inputs_;
  const model::ModelConfig& config_;
  const size_t tokens_;
  std::vector<ExpectedTensor> tensors_;
};

}  // namespace

std::vector<ExpectedTensor> ExpectedTensors(const StepInputs& inputs) {
  return Lister(inputs).List();
}

}  // namespace isoloss::step_checks
