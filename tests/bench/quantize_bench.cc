// Quantise-dequantise of FP32 words on one thread, beside a plain copy of the
// same bytes.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "contest.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "isoloss/kernels/prepare.h"
#include "isoloss/kernels/quantize.h"
#include "isoloss/precision/recipe.h"
#include "products.h"
#include "program.h"
#include "support/quantize_transposed.h"

namespace isoloss::bench {
namespace {

using Quantize = void (*)(MatrixView<const float>, const formats::Quantization&,
                          MatrixView<float>, Executor&);

/// Square matrices: 256 KB, with the result half a megabyte, is inside L2; 256
/// MB is outside every cache.
constexpr size_t kInL2 = 256;
constexpr size_t kInMemory = 8192;

void OneMatrix(benchmark::State& state, Quantize quantize,
               const formats::Quantization& spec, size_t side) {
  const Matrix<float> source = Bf16Noise(side, side, 0);
  Matrix<float> out(side, side);
  Executor executor(1);
  Contest contest = Contest::OneThread();
  const size_t quantising =
      contest.Add([&] { quantize(source.view(), spec, out.view(), executor); });
  const size_t copying = contest.Add([&] {
    std::memcpy(out.data(), source.data(), source.size() * sizeof(float));
    benchmark::ClobberMemory();
  });
  contest.Run(state);
  state.counters["giga_elements_per_s"] =
      1e-9 * static_cast<double>(source.size()) / contest.Seconds(quantising);
  state.counters["of_copy"] = contest.TimeRatio(copying, quantising);
}

void Register(const std::string& what, Quantize quantize,
              const std::string& element, formats::ScaleRule mode, size_t side,
              int rounds) {
  const formats::Quantization spec = {&formats::FormatByName(element), mode};
  benchmark::RegisterBenchmark(
      fmt::format("{}/{}_{}", what, element, formats::ScaleRuleName(mode))
          .c_str(),
      [=](benchmark::State& state) { OneMatrix(state, quantize, spec, side); })
      ->UseManualTime()
      ->Iterations(rounds);
}

/// An operand as a product of a recipe takes it, which is quantised as a whole.
void OneOperand(benchmark::State& state, const formats::Quantization& spec,
                bool down_columns) {
  const Matrix<float> source = Bf16Noise(kInL2, kInL2, 0);
  kernels::OperandState operand_state;
  operand_state.common = {.history = 4.0f, .seed = 1, .stream = 2};
  const kernels::Operand operand = {
      .values = source.view(),
      .contraction = down_columns ? kernels::Contraction::kRows
                                  : kernels::Contraction::kColumns,
      .quantization = &spec,
      .state = &operand_state};
  const kernels::Pieces pieces =
      kernels::PiecesOf(&spec, &spec, {}, {&kInL2, 1});
  kernels::PreparedOperand prepared;
  Contest contest = Contest::OneThread();
  const size_t preparing =
      contest.Add([&] { kernels::Prepare(operand, pieces, {}, prepared); });
  Matrix<float> out(kInL2, kInL2);
  const size_t copying = contest.Add([&] {
    std::memcpy(out.data(), source.data(), source.size() * sizeof(float));
    benchmark::ClobberMemory();
  });
  contest.Run(state);
  state.counters["giga_elements_per_s"] =
      1e-9 * static_cast<double>(source.size()) / contest.Seconds(preparing);
  state.counters["of_copy"] = contest.TimeRatio(copying, preparing);
}

void RegisterOperands(int rounds) {
  for (const char* name :
       {"te_mxfp8_2d", "te_fp8_delayed", "te_fp8_current", "te_nvfp4",
        "deepseek_v3_fp8", "fp8_rowwise", "mxfp4_rht_sr"}) {
    const precision::Recipe& recipe = precision::RecipeByName(name);
    const auto add = [&](const char* what,
                         const std::optional<formats::Quantization>& operand,
                         bool down_columns) {
      benchmark::RegisterBenchmark(
          fmt::format("operand_l2/{}_{}", name, what).c_str(),
          [=](benchmark::State& state) {
            OneOperand(state, *operand, down_columns);
          })
          ->UseManualTime()
          ->Iterations(rounds);
    };
    if (!recipe.fprop.left->is_mx()) add("x", recipe.fprop.left, false);
    if (!recipe.fprop.right->is_mx()) add("w", recipe.fprop.right, false);
    add("dy", recipe.dgrad.left, false);
    add("dy_of_wgrad", recipe.wgrad.left, true);
  }
}

void RegisterAll(int rounds) {
  RegisterOperands(rounds);
  using formats::ScaleRule;
  const auto rows = kernels::QuantizeDequantize;
  const auto transposing = kernels::QuantizeDequantizeTransposed;
  for (const auto mode : {ScaleRule::kFloor, ScaleRule::kCeil, ScaleRule::kEven,
                          ScaleRule::kRceil}) {
    Register("rows_l2", rows, "e4m3", mode, kInL2, rounds);
    Register("transposing_l2", transposing, "e4m3", mode, kInL2, rounds);
  }
  Register("rows_l2", rows, "e5m2", ScaleRule::kRceil, kInL2, rounds);
  Register("transposing_l2", transposing, "e5m2", ScaleRule::kRceil, kInL2,
           rounds);
  Register("rows_memory", rows, "e4m3", ScaleRule::kRceil, kInMemory, rounds);
}

}  // namespace
}  // namespace isoloss::bench

int main(int argc, char** argv) {
  return isoloss::bench::RunProgram(argc, argv, isoloss::bench::RegisterAll);
}
