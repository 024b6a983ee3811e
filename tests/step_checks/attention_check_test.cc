#include "isoloss/step_checks/attention_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "step_checks/recorded_step.h"

namespace isoloss::step_checks::attention_check_test {
namespace {

using isoloss::test_support::ExpectFound;
using isoloss::test_support::ExpectNoOthers;
using isoloss::test_support::OneRank;
using isoloss::test_support::RecordedStep;
using isoloss::test_support::SmallConfig;

model::ModelConfig YarnConfig() {
  model::ModelConfig config = SmallConfig();
  config.q_lora_rank = 0;
  config.yarn = true;
  config.original_seq_len = 32;
  return config;
}

std::function<void(ReportSink&)> CheckOf(const RecordedStep& step) {
  return [&step](ReportSink& sink) {
    CheckAttention(step.record, step.config, 1, step.batch, step.grid, sink);
  };
}

TEST(AttentionCheck, FindsNothingInCorrectSteps) {
  for (const char* recipe : {"bf16", "mxfp8_rceil", "fp32"}) {
    for (const model::ModelConfig& config : {SmallConfig(), YarnConfig()}) {
      const RecordedStep step(config, OneRank(config), recipe);

      ExpectNoOthers(CheckOf(step), recipe);
    }
  }
}

TEST(AttentionCheck, CountsEveryElementOnce) {
  const RecordedStep step(SmallConfig(), OneRank(SmallConfig()), "bf16");
  ReportSink sink;

  CheckOf(step)(sink);

  for (const auto& [tensor, comparison] : sink.comparisons()) {
    // The columns of the latent belong to kv_norm's check.
    const int64_t latent = tensor.ends_with("wkv_a_gradient")
                               ? static_cast<int64_t>(step.config.kv_lora_rank)
                               : 0;
    const Matrix<float>& values = step.record.At(tensor).values;
    EXPECT_EQ(comparison.elements(),
              static_cast<int64_t>(values.size()) -
                  static_cast<int64_t>(values.rows()) * latent)
        << tensor;
  }
  EXPECT_EQ(sink.comparisons().size(), 8u);
}

TEST(AttentionCheck, FindsAChangeOfEveryTensor) {
  for (const char* recipe : {"bf16", "fp32"}) {
    RecordedStep step(YarnConfig(), OneRank(YarnConfig()), recipe);
    const std::string name = "layers.1.attention.";
    const size_t rope = step.config.kv_lora_rank + 1;  // a column of k_pe
    const size_t row = 40;
    const std::vector<std::pair<std::string, size_t>> places = {
        {"wq_output", 3},
        {"wq_output", 12},
        {"wkv_a_output", rope},
        {"wkv_b_output", 2},
        {"wkv_b_output", 12},
        {"q_pe_rotated_output", 1},
        {"k_pe_rotated_output", 2},
        {"inner_attention_output", 5},
        {"wo_dgrad", 7},
        {"inner_attention.q_gradient", 3},
        {"inner_attention.q_gradient", 13},
        {"inner_attention.k_gradient", 3},
        {"inner_attention.k_gradient", 13},
        {"wkv_b_gradient", 2},
        {"wkv_b_gradient", 12},
        {"wq_gradient", 3},
        {"wq_gradient", 13},
        {"wkv_a_gradient", rope}};

    for (const auto& [tensor, column] : places) {
      ExpectFound(step.record, name + tensor, row, column, CheckOf(step));
    }
  }
}

/// Attention as the definition has it, but every sum in falling order, products
/// rounded by themselves, and divided by the sum last.
void AttendBackwards(RecordedStep& step) {
  const model::ModelConfig& c = step.config;
  const std::string name = "layers.1.attention.";
  const auto of = [&](const char* tensor) {
    return step.record.At(name + tensor).values.view();
  };
  const auto q_nope = of("wq_output");
  const auto q_pe = of("q_pe_rotated_output");
  const auto k_pe = of("k_pe_rotated_output");
  const auto expanded = of("wkv_b_output");
  Matrix<float>& out =
      step.record.MutableAt(name + "inner_attention_output").values;
  const size_t stride = c.qk_nope_head_dim + c.v_head_dim;
  const auto score = [&](size_t h, size_t i, size_t j) {
    float sum = 0.0f;
    for (size_t d = c.qk_rope_head_dim; d-- > 0;) {
      sum += q_pe(i, h * c.qk_rope_head_dim + d) * k_pe(j, d);
    }
    for (size_t d = c.qk_nope_head_dim; d-- > 0;) {
      sum += q_nope(i, h * c.qk_head_dim() + d) * expanded(j, h * stride + d);
    }
    return sum * OracleSoftmaxScale(c);
  };
  size_t begin = 0;
  for (const size_t end : step.batch.document_ends) {
    for (size_t h = 0; h < c.n_heads; ++h) {
      for (size_t i = begin; i < end; ++i) {
        float total = 0.0f;
        std::vector<float> sums(c.v_head_dim, 0.0f);
        for (size_t j = i + 1; j-- > begin;) {
          const float e = std::exp(score(h, i, j) - score(h, i, begin));
          total += e;
          for (size_t d = 0; d < c.v_head_dim; ++d) {
            sums[d] += e * expanded(j, h * stride + c.qk_nope_head_dim + d);
          }
        }
        for (size_t d = 0; d < c.v_head_dim; ++d) {
          out(i, h * c.v_head_dim + d) =
              RoundTo(step.grid, static_cast<double>(sums[d] / total));
        }
      }
    }
    begin = end;
  }
}

TEST(AttentionCheck, AnotherOrderOfSummationIsNoOther) {
  for (const char* recipe : {"bf16", "fp32"}) {
    RecordedStep step(YarnConfig(), OneRank(YarnConfig()), recipe);
    AttendBackwards(step);
    ReportSink sink;

    CheckOf(step)(sink);

    const runlog::OracleRow row =
        sink.comparisons()
            .at("layers.1.attention.inner_attention_output")
            .Row();
    EXPECT_EQ(row.other, 0) << recipe << ", ratio " << row.worst_ratio;
    // 16 bits hide nearly all of it, 24 show it.
    EXPECT_GE(row.flips,
              step.grid == oracle::Grid::kFp32 ? row.elements / 4 : 0);
  }
}

TEST(AttentionCheck, FindsAttentionAcrossDocuments) {
  const model::ModelConfig config = SmallConfig();
  RecordedStep step(config, OneRank(config), "bf16", {40, 30});
  step.batch.document_ends = {70};  // as if they were one
  ReportSink sink;

  CheckOf(step)(sink);

  EXPECT_GT(sink.comparisons()
                .at("layers.1.attention.inner_attention_output")
                .Row()
                .other,
            0);
}

TEST(AttentionCheck, FindsAnotherRotationOrScale) {
  const auto change = [](auto edit) {
    const model::ModelConfig config = YarnConfig();
    RecordedStep step(config, OneRank(config), "bf16");
    edit(step);
    ReportSink sink;
    CheckOf(step)(sink);
    return isoloss::test_support::Others(sink);
  };

  EXPECT_GT(change([](RecordedStep& s) { s.config.rope_theta = 20000; }), 0);
  EXPECT_GT(change([](RecordedStep& s) { s.config.rope_factor = 39; }), 0);
  EXPECT_GT(change([](RecordedStep& s) { s.config.mscale = 0.9; }), 0);
  EXPECT_GT(change([](RecordedStep& s) { s.config.yarn = false; }), 0);
}

// Positions are what is checked, not what the check goes by.
TEST(AttentionCheck, FindsAWrongPosition) {
  const model::ModelConfig config = SmallConfig();
  const RecordedStep step(config, OneRank(config), "bf16", {70, 1},
                          [](auto& batch) { --batch.positions[69]; });
  ReportSink sink;

  CheckOf(step)(sink);

  EXPECT_GT(isoloss::test_support::Others(sink), 0);
}

// DeepSeek-V3's factors: docs/model.md, section 3.
TEST(AttentionCheck, ScaleIsThePublishedOne) {
  model::ModelConfig config;
  config.qk_nope_head_dim = 128;
  config.qk_rope_head_dim = 64;
  config.yarn = true;

  EXPECT_NEAR(static_cast<double>(OracleSoftmaxScale(config)), 0.135234, 5e-7);
}

}  // namespace
}  // namespace isoloss::step_checks::attention_check_test
