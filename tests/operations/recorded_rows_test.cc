// Rows that travel to experts and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "isoloss/precision/operands.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_rows_test {
namespace {

using formats::RoundToBf16;
using test_support::Random;
using test_support::Zeros;

Operation Dispatch(const std::function<float(float)>& change, int shift) {
  Operation dispatch = {.type = "dispatch", .module = "layers.1.moe"};
  const Floats& tokens = dispatch.floats["tokens"] =
      Random({16, 32}, "tokens", "float32");
  Integers& source =
      dispatch.integers["source"] = {.extent = {32}, .values = {}};
  Floats& rows = dispatch.floats["rows"] = Zeros({32, 32}, "float32");
  for (int64_t m = 0; m < 32; ++m) source.values.push_back(m * 7 % 16);
  for (int64_t m = 0; m < 32; ++m) {
    const auto from = static_cast<size_t>(
        source.values[static_cast<size_t>((m + shift + 32) % 32)]);
    for (size_t d = 0; d < 32; ++d) {
      rows.values[static_cast<size_t>(m) * 32 + d] =
          change(tokens.values[from * 32 + d]);
    }
  }
  return dispatch;
}

TEST(DispatchCheck, NamesTheFactorOfOneRow) {
  Operation dispatch = Dispatch([](float v) { return v; }, 0);
  for (size_t d = 0; d < 32; ++d)
    dispatch.floats["rows"].values[5 * 32 + d] *= 2;

  const auto findings = Check({dispatch});

  ExpectNamed(findings, "rows", "rows_scaled");
  EXPECT_EQ(Part(findings, "rows").explanation->sentence,
            "rows 5 were 2 times their tokens");
}

TEST(DispatchCheck, NamesEachPlantedMistake) {
  const auto same = [](float v) { return v; };
  ExpectRight({Dispatch(same, 0)});
  ExpectNamed({Dispatch(same, 1)}, "rows", "rows_shifted");
  ExpectNamed({Dispatch(same, -1)}, "rows", "rows_shifted_back");
  ExpectNamed({Dispatch(
                  [](float v) {
                    return formats::RoundToFormat(formats::FormatByName("e4m3"),
                                                  v,
                                                  formats::Overflow::kSaturate);
                  },
                  0)},
              "rows", "rounded_e4m3");
  // FP32 values that BF16 does not hold.
  Operation rounded = Dispatch(same, 0);
  Floats& tokens = rounded.floats["tokens"];
  for (float& value : tokens.values) value *= 1.0f + 0x1p-9f;
  const auto send = [&](const Matrix<float>& values) {
    const auto& source = rounded.FindIntegers("source")->values;
    for (size_t m = 0; m < source.size(); ++m) {
      std::copy_n(values.Row(static_cast<size_t>(source[m])), 32,
                  rounded.floats["rows"].values.begin() +
                      static_cast<ptrdiff_t>(m * 32));
    }
  };
  Matrix<float> bf16(16, 32);
  for (size_t i = 0; i < bf16.size(); ++i) {
    bf16.data()[i] = RoundToBf16(tokens.values[i]);
  }
  send(bf16);
  ExpectNamed({rounded}, "rows", "rounded_bf16");
  for (const auto& [name, rule] :
       {std::pair{"rounded_mx_rceil", formats::ScaleRule::kRceil},
        {"rounded_mx_floor", formats::ScaleRule::kFloor}}) {
    send(test_support::OperandValues(tokens.Rows(), false,
                                     precision::MxOperand("e4m3", rule)));
    ExpectNamed({rounded}, "rows", name);
  }
  Operation other = Dispatch(same, 0);
  std::swap_ranges(other.floats["rows"].values.begin(),
                   other.floats["rows"].values.begin() + 32,
                   other.floats["rows"].values.begin() + 64);
  ExpectNamed({other}, "rows", "wrong_token");
}

struct CombineMistakes {
  int weights = 1;
  int addends = 1;
  bool bf16 = false;
  int64_t skip_from = 0;
  int64_t skip_to = 0;
  bool bf16_products = false;
  bool addend_last = false;
};

/// `inputs`: those of another one.
Operation Combine(const CombineMistakes& mistakes,
                  const Operation* inputs = nullptr) {
  constexpr size_t kRows = 64;
  constexpr size_t kTokens = 16;
  constexpr size_t kWidth = 32;
  Operation combine = {.type = "combine", .module = "layers.1.moe"};
  if (inputs == nullptr) {
    combine.floats["rows"] = Random({kRows, kWidth}, "rows");
    combine.floats["weights"] = Random({kRows}, "weights", "float32");
    combine.floats["addend"] = Random({kTokens, kWidth}, "addend");
    Integers& source = combine.integers["source"];
    source.extent = {kRows};
    for (size_t m = 0; m < kRows; ++m) {
      source.values.push_back(static_cast<int64_t>(m * 5 % kTokens));
    }
  } else {
    combine = *inputs;
  }
  const Floats& rows = *combine.Find("rows");
  const Floats& weights = *combine.Find("weights");
  const Floats& addend = *combine.Find("addend");
  const Integers& source = *combine.FindIntegers("source");
  Floats& output = combine.floats["output"] = Zeros({kTokens, kWidth});
  for (size_t d = 0; d < kWidth; ++d) {
    std::vector<float> sums(kTokens);
    for (size_t t = 0; t < kTokens; ++t) {
      sums[t] = mistakes.addend_last ? 0.0f
                                     : static_cast<float>(mistakes.addends) *
                                           addend.values[t * kWidth + d];
    }
    for (size_t m = 0; m < kRows; ++m) {
      const auto row = static_cast<int64_t>(m);
      if (row >= mistakes.skip_from && row < mistakes.skip_to) continue;
      float& sum = sums[static_cast<size_t>(source.values[m])];
      float product = rows.values[m * kWidth + d];
      for (int i = 0; i < mistakes.weights; ++i) product *= weights.values[m];
      sum += mistakes.bf16_products ? RoundToBf16(product) : product;
      if (mistakes.bf16) sum = RoundToBf16(sum);
    }
    for (size_t t = 0; mistakes.addend_last && t < kTokens; ++t) {
      sums[t] += addend.values[t * kWidth + d];
    }
    for (size_t t = 0; t < kTokens; ++t) {
      output.values[t * kWidth + d] = RoundToBf16(sums[t]);
    }
  }
  return combine;
}

TEST(CombineCheck, NamesARoundingOfTheRoutedPart) {
  Operation combine = Combine({});
  const Operation routed = Combine({.addends = 0});
  const auto& addend = combine.Find("addend")->values;
  auto& output = combine.floats["output"].values;
  for (size_t i = 0; i < output.size(); ++i) {
    output[i] = RoundToBf16(routed.Find("output")->values[i] + addend[i]);
  }

  ExpectNamed({combine}, "output", "routed_bf16");
}

TEST(CombineCheck, NamesEachPlantedMistake) {
  Operation experts = test_support::GroupedInputs();
  ExpectRight({Combine({})});
  ExpectNamed({Combine({.weights = 0})}, "output", "weight_missing");
  ExpectNamed({Combine({.weights = 2})}, "output", "weights_twice");
  ExpectNamed({Combine({.addends = 0})}, "output", "addend_missing");
  ExpectNamed({Combine({.addends = 2})}, "output", "addend_twice");
  ExpectNamed({Combine({.bf16 = true})}, "output", "sums_bf16");
  ExpectNamed({Combine({.skip_from = 0, .skip_to = 16})}, "output",
              "slot_missing_first");
  ExpectNamed({Combine({.skip_from = 48, .skip_to = 64})}, "output",
              "slot_missing_last");
  ExpectNamed({Combine({.bf16_products = true})}, "output", "products_bf16");
  ExpectNamed({Combine({.bf16 = true, .bf16_products = true})}, "output",
              "sums_and_products_bf16");
  ExpectNamed({Combine({.bf16 = true, .addend_last = true})}, "output",
              "sums_bf16_addend_last");
  ExpectNamed(
      {Combine({.bf16 = true, .bf16_products = true, .addend_last = true})},
      "output", "products_and_sums_bf16_addend_last");
  ExpectNamed({experts, Combine({.skip_from = 20, .skip_to = 49})}, "output",
              "expert_missing");
}

TEST(DispatchCheck, NamesTheFactorOfRows) {
  for (const float factor : {0.5f, 1.0f / 3, -1.0f, 0.0f}) {
    // BF16 rows are rounded once, and so is what is compared with them.
    Operation dispatch = Dispatch([](float v) { return v; }, 0);
    dispatch.floats["rows"].type = "bfloat16";
    for (float& row : dispatch.floats["rows"].values) {
      row = RoundToBf16(row * factor);
    }
    ExpectNamed({dispatch}, "rows", factor == 0 ? "rows_zero" : "rows_scaled");
    if (factor != 1.0f / 3) continue;
    EXPECT_EQ(Check({dispatch})[0].explanation->sentence,
              "rows were 0.333333333 times their tokens");
  }
}

TEST(CombineCheck, NamesTheFactorOfATerm) {
  const Operation right = Combine({});
  const auto scaled = [&](float rows, float addend) {
    Operation other = right;
    for (float& row : other.floats["rows"].values) row *= rows;
    for (float& added : other.floats["addend"].values) added *= addend;
    // What those inputs give, beside the inputs as they were.
    const Operation result = Combine({}, &other);
    other = right;
    other.floats["output"] = result.floats.at("output");
    return other;
  };
  ExpectNamed({scaled(0.5f, 1)}, "output", "routed_scaled");
  ExpectNamed({scaled(2.5f, 1)}, "output", "routed_scaled");
  ExpectNamed({scaled(1, 0.25f)}, "output", "addend_scaled");
  ExpectNamed({scaled(3, 3)}, "output", "output_scaled");
  // Of some tokens only.
  Operation some = scaled(0.5f, 1);
  std::copy_n(right.floats.at("output").values.begin(), 10 * 32,
              some.floats["output"].values.begin());
  ExpectNamed({some}, "output", "routed_scaled");
  EXPECT_EQ(Check({some})[0].explanation->sentence,
            "the routed part of tokens 10, 11, 12, 13, 14, 15 was 0.5 times "
            "what weights and rows give");
}

TEST(CombineCheck, NamesRowsOfSingleTokens) {
  const Operation right = Combine({});
  const auto with = [&](const std::function<void(Operation&)>& change) {
    Operation inputs = right;
    change(inputs);
    const Operation result = Combine({}, &inputs);
    Operation operation = right;
    operation.floats["output"] = result.floats.at("output");
    return operation;
  };
  const auto expect = [](const Operation& operation, const std::string& name,
                         const std::string& sentence) {
    ExpectNamed({operation}, "output", name);
    EXPECT_EQ(Check({operation})[0].explanation->sentence, sentence);
  };
  Operation rotated = right;
  std::vector<float>& output = rotated.floats["output"].values;
  std::rotate(output.begin(), output.begin() + 32, output.begin() + 3 * 32);
  expect(rotated, "wrong_token",
         "output of tokens 0, 1, 2 is that of tokens 1, 2, 0");
  std::fill_n(output.begin(), 3 * 32, 0.0f);
  expect(rotated, "token_zero", "output of tokens 0, 1, 2 is zero");
  // Row 7 is of token 35 % 16.
  const auto weigh = [&](size_t row, float factor) {
    return with([=](Operation& inputs) {
      inputs.floats["weights"].values[row] *= factor;
    });
  };
  expect(weigh(7, 0), "row_missing", "token 3 lacks row 7 times its weight");
  expect(weigh(7, 2), "row_twice", "token 3 counts row 7 twice");
  ExpectNamed({with([](Operation& inputs) {
                std::ranges::rotate(
                    inputs.integers["source"].values,
                    inputs.integers["source"].values.begin() + 1);
              })},
              "output", "source_shifted_back");
  expect(with([](Operation& inputs) {
           std::vector<float>& weights = inputs.floats["weights"].values;
           std::swap(weights[7], weights[55]);
           std::swap(weights[23], weights[39]);
         }),
         "weights_reversed",
         "rows of token 3 had their weights in reverse order");
  expect(with([](Operation& inputs) {
           for (size_t m = 7; m < 64; m += 16) {
             inputs.floats["weights"].values[m] = 0;
           }
         }),
         "rows_missing", "all rows of token 3 were left out");
  expect(with([](Operation& inputs) {
           std::vector<float>& addend = inputs.floats["addend"].values;
           std::swap_ranges(addend.begin(), addend.begin() + 32,
                            addend.begin() + 4 * 32);
         }),
         "wrong_addend", "the addend of tokens 0, 4 is that of tokens 4, 0");
  expect(with([](Operation& inputs) {
           std::vector<int64_t>& source = inputs.integers["source"].values;
           std::swap(source[7], source[9]);
         }),
         "wrong_row",
         "token 3 has row 9 of token 13 in place of its row 7, token 13 has "
         "row 7 of token 3 in place of its row 9");
}

}  // namespace
}  // namespace isoloss::operations::recorded_rows_test
