// Fills every column of a synthetic run with values that fit each other.
#pragma once

#include <cmath>
#include <vector>

#include "isoloss/runlog/run_log.h"
#include "synthetic_runs.h"

namespace isoloss::test_support {

/// One MoE layer of two experts, which have 600 and 424 of each step's tokens,
/// one slot each.
inline void FillRouting(runlog::RunLog& log) {
  runlog::MoeColumns& moe = log.moe;
  const int64_t tokens = log.provenance.tokens_per_step;
  constexpr int64_t kFirst = 600;
  moe = {};
  moe.step = log.steps.step;
  moe.layers = 1;
  moe.experts = 2;
  moe.tokens = tokens;
  moe.top_k = 1;
  for (size_t row = 0; row < moe.step.size(); ++row) {
    moe.tokens_per_expert.insert(moe.tokens_per_expert.end(),
                                 {kFirst, tokens - kFirst});
    moe.expert_bias.insert(moe.expert_bias.end(), {0.125, -0.125});
    moe.dropped_tokens.push_back(0);
    moe.padding_rows.push_back(16);
    for (int64_t token = 0; token < tokens; ++token) {
      moe.expert_ids.push_back(token < kFirst ? 0 : 1);
    }
    moe.router_entropy.push_back(0.6);
    moe.routing_digest.push_back(77);
    moe.routing_flips.push_back(3);
    log.steps.expert_load_max_over_mean[row] =
        2.0 * kFirst / static_cast<double>(tokens);
    log.steps.dead_experts[row] = 0;
  }
}

/// Two ranks of one node; rank 0 sends 4 bytes to itself and 6 to rank 1, which
/// sends 10 to either.
inline void FillExchange(runlog::RunLog& log) {
  runlog::ExchangeColumns& x = log.exchange;
  const int64_t tokens = log.provenance.tokens_per_step;
  x = {};
  x.step = log.steps.step;
  x.ranks = 2;
  x.layers = 1;
  const auto steps = static_cast<int64_t>(x.step.size());
  for (int64_t row = 0; row < steps; ++row) {
    x.bytes_sent.insert(x.bytes_sent.end(), {10, 20});
    x.bytes_received.insert(x.bytes_received.end(), {14, 16});
    x.wait_seconds.insert(x.wait_seconds.end(), {0.01, 0.02});
    x.bytes_to_self.push_back(14);
    x.bytes_within_nodes.push_back(16);
    x.bytes_between_nodes.push_back(0);
    x.messages.push_back(4);
    for (auto* rows : {&x.assignments, &x.dispatch_rows, &x.rank_rows}) {
      rows->push_back(tokens);
    }
    x.node_rows.push_back(tokens - 24);
    x.max_rows_per_rank.push_back(600);
    x.max_rows_per_expert.push_back(600);
    x.empty_experts.push_back(0);
  }
  x.bytes_by_pair = {4 * steps, 6 * steps, 10 * steps, 10 * steps};
}

/// A tensor of sixteen times 1, 2, 3, 6 at the first and last step, which
/// became 1, 2, 3, 5 in either direction.
inline void FillTensors(runlog::RunLog& log) {
  runlog::TensorColumns& tensors = log.tensors;
  tensors = {};
  tensors.step = {log.steps.step.front(), log.steps.step.back()};
  tensors.count = 1;
  tensors.names = {"layers.0.wq_weight"};
  tensors.digest = {11, 12};
  tensors.scale_bytes = static_cast<int64_t>(runlog::kScaleBytes);
  const auto set = [&](size_t statistic, double value) {
    tensors.statistics[statistic] = {value, value};
  };
  set(runlog::kStat_numel, 64);
  set(runlog::kStat_nonfinite_num, 0);
  set(runlog::kStat_zeros_num, 0);
  set(runlog::kStat_min, 1);
  set(runlog::kStat_max, 6);
  set(runlog::kStat_sum, 192);
  set(runlog::kStat_mean, 3);
  set(runlog::kStat_variance, 224.0 / 63);
  set(runlog::kStat_std, std::sqrt(224.0 / 63));
  set(runlog::kStat_l1_norm, 192);
  set(runlog::kStat_l2_norm, std::sqrt(800.0));
  set(runlog::kStat_cur_amax, 6);
  set(runlog::kStat_dynamic_range, std::log2(6.0));
  set(runlog::kStat_max_blockwise_dynamic_range, std::log2(6.0));
  set(runlog::kStat_max_blockwise_dynamic_range_columnwise, 1);
  for (const size_t direction :
       {size_t{0}, runlog::kStat_underflows_num_columnwise -
                       runlog::kStat_underflows_num}) {
    set(direction + runlog::kStat_underflows_num, 0);
    set(direction + runlog::kStat_underflows, 0);
    set(direction + runlog::kStat_saturated_num, 16);
    set(direction + runlog::kStat_saturated, 25);
    set(direction + runlog::kStat_nan_blocks, 0);
    set(direction + runlog::kStat_scale_inv_min, 120);
    set(direction + runlog::kStat_scale_inv_max, 120);
    // Of four: <x, q> = 44, |x|^2 = 50, |q|^2 = 39, |x - q|^2 = 1.
    set(direction + runlog::kStat_mse, 0.25);
    set(direction + runlog::kStat_sqnr, 10 * std::log10(50.0));
    set(direction + runlog::kStat_cosine, 44 / std::sqrt(50.0 * 39));
    set(direction + runlog::kStat_signed_gain, 44.0 / 50);
    set(direction + runlog::kStat_block_argmax_spread, 0);
  }
  for (auto* histogram :
       {&tensors.e8m0_histogram, &tensors.e8m0_histogram_columnwise}) {
    histogram->assign(2 * runlog::kScaleBytes, 0);
    (*histogram)[120] = (*histogram)[runlog::kScaleBytes + 120] = 2;
  }
}

/// Gives every column of the schema values.
inline void FillColumns(runlog::RunLog& log) {
  log.schema_version = runlog::kSchemaVersion;
  log.provenance.experiment_text = SyntheticText(/*full=*/true);
  log.provenance.transport = "loop";
  FillAttributes(log.provenance);
  log.provenance.processes = 2;
  log.provenance.ranks = 2;
  log.steps.nonfinite_gradients.assign(log.steps.step.size(), 0);
  FillBatches(log);
  log.parameters = SampleParameters(log.steps);
  FillRouting(log);
  FillExchange(log);
  FillTensors(log);
  log.events = {{1.7e9, "start", "started"}, {1.8e9, "finish", "finished"}};
}

}  // namespace isoloss::test_support
