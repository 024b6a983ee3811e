// Products of operands that are quantised as wholes, and sums that are no FP32
// chains.
#pragma once

#include <cstdint>
#include <vector>

#include "isoloss/formats/quantization.h"
#include "isoloss/kernels/accumulator.h"
#include "isoloss/kernels/operand.h"

namespace isoloss::kernels {

/// What a and b are, and how their products are summed.
struct QuantizedCase {
  const char* name;
  formats::Quantization a;
  formats::Quantization b;
  Accumulation accumulation = {};
};

inline std::vector<QuantizedCase> QuantizedCases() {
  using formats::Quantization;
  using formats::QuantizationByName;
  const Quantization mx = QuantizationByName("e4m3.rceil");
  const Quantization tensor = QuantizationByName("e4m3.te.fp32.0x0");
  const Quantization row = QuantizationByName("e4m3.torchao.fp32.1x0");
  const Quantization delayed =
      QuantizationByName("e4m3.te.fp32.0x0.delayed.history4");
  const Quantization tile = QuantizationByName("e4m3.deepgemm.fp32.1x16");
  const Quantization square = QuantizationByName("e4m3.deepgemm.fp32.16x32");
  const Quantization pow2 = QuantizationByName("e4m3.te.pow2.16x16");
  const Quantization nvfp4 = QuantizationByName("nvfp4");
  const Quantization nvfp4_square =
      QuantizationByName("e2m1.te.e4m3.16x16.two_level");
  const Quantization nvfp4_rht =
      QuantizationByName("e2m1.te.e4m3.1x16.two_level.hadamard16_te");
  const Quantization nvfp4_rht_sr = QuantizationByName(
      "e2m1.te.e4m3.1x16.two_level.stochastic8.hadamard16_te");
  const Quantization signs = QuantizationByName("e4m3.rceil.hadamard16_random");
  const Quantization stochastic = QuantizationByName("e4m3.rceil.stochastic16");
  const Quantization int8 = QuantizationByName("int8.rceil");
  const Quantization fp16 = QuantizationByName("fp16.none");
  const Accumulation promoted{.interval = 16};
  const Accumulation hopper{&AccumulatorByName("hopper_f13"), 64};
  const Accumulation blackwell{&AccumulatorByName("blackwell_f25")};
  const Accumulation hopper_bf16{&AccumulatorByName("hopper_bf16")};
  const Accumulation ampere_bf16{&AccumulatorByName("ampere_bf16"), 48};
  const Accumulation blackwell_fp4{&AccumulatorByName("blackwell_fp4")};
  const Accumulation cdna3{&AccumulatorByName("cdna3_fp8")};
  const Accumulation bf16{.interval = 32, .outer = Rounding::kBf16};
  return {
      {"tensor", tensor, tensor},
      {"row", row, row},
      {"delayed", delayed, tensor},
      {"deepseek", tile, square},
      {"deepseek_promoted", tile, square, promoted},
      {"pow2", pow2, pow2},
      {"nvfp4", nvfp4, nvfp4_square},
      {"nvfp4_rht_sr", nvfp4_rht_sr, nvfp4_rht},
      {"random_signs", signs, signs},
      {"mx_stochastic", stochastic, mx},
      {"mx_int8", int8, int8},
      {"fp16", fp16, fp16},
      {"mx_promoted", mx, mx, promoted},
      {"mx_bf16_sums", mx, mx, bf16},
      {"hopper", tensor, tensor, hopper},
      {"blackwell", mx, mx, blackwell},
      {"hopper_bf16", mx, nvfp4, hopper_bf16},
      {"ampere_bf16", mx, mx, ampere_bf16},
      {"blackwell_fp4", nvfp4, nvfp4_square, blackwell_fp4},
      {"cdna3", mx, mx, cdna3},
  };
}

inline OperandState NonTrivialState(uint64_t stream) {
  OperandState state;
  state.common.history = 0.25f;
  state.common.seed = 7;
  state.common.stream = stream;
  state.common.transform_key = 0xB00F;
  state.first_tensor = 3;
  return state;
}

}  // namespace isoloss::kernels
