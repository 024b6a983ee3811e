// fp8_scaled.h5: FP8 codes under FP32 scales and powers of two, as
// TransformerEngine, torchao and DeepGEMM computed them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>

#include "comparison.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/formats/rules.h"

namespace isoloss::formats::fp8_scaled_vectors_test {
namespace {

using isoloss::test_support::H5File;
using ::testing::IsSupersetOf;

/// What "te_1x128" and the like says: rule and cell.
Quantization DescriptionOf(const std::string& producer,
                           const std::string& element,
                           const std::string& scale) {
  const size_t split = producer.find('_');
  const std::string shape = producer.substr(split + 1);
  Quantization quantization;
  quantization.element = &FormatByName(element);
  quantization.scale_rule = ScaleRuleByName(producer.substr(0, split));
  quantization.scale_format =
      std::ranges::find(kScaleFormatNames, scale, &Named<ScaleFormat>::name)
          ->value;
  quantization.non_finite = NonFinitePolicy::kTe;
  quantization.cell = {0, 0};
  if (shape != "per_tensor") {
    EXPECT_EQ(std::sscanf(shape.c_str(), "%zux%zu", &quantization.cell.rows,
                          &quantization.cell.cols),
              2)
        << producer;
  }
  EXPECT_EQ(WrongQuantization(quantization), "");
  return quantization;
}

float Amax(MatrixView<const float> values) {
  float amax = 0;
  for (size_t row = 0; row < values.rows(); ++row) {
    for (size_t col = 0; col < values.cols(); ++col) {
      amax = std::max(amax, std::fabs(values(row, col)));
    }
  }
  return amax;
}

/// torchao stores the factor of the elements, of the one cell of the tensor.
void ExpectFactor(const H5File& file, const std::string& dataset,
                  const Quantization& quantization,
                  MatrixView<const float> values) {
  const Scale scale = ScaleOfFiniteCell(
      quantization, std::bit_cast<uint32_t>(Amax(values)), {});
  Matrix<float> factor(1, 1);
  factor(0, 0) = scale.encode;

  ExpectMatrix(file, dataset, factor);
}

TEST(Fp8ScaledVectors, CodesAndScalesAreTheProducers) {
  const H5File file = OpenVectors("fp8_scaled.h5");
  const std::set<std::string> cases = Groups(file, "", "");
  ASSERT_FALSE(cases.empty());
  std::set<std::string> compared;
  for (const std::string& name : cases) {
    const auto x = file.Read<float>(name + "/x");
    std::set<std::string> producers = Groups(file, name, "");
    producers.erase("x");
    for (const std::string& producer : producers) {
      const std::string of_producer = name + "/" + producer;
      for (const std::string& element : Groups(file, of_producer, "")) {
        for (const std::string& scale :
             Groups(file, of_producer + "/" + element, "")) {
          const std::string group =
              of_producer + "/" + element + "/" + scale + "/";
          const Quantization quantization =
              DescriptionOf(producer, element, scale);

          const QuantizedTensor q = Quantize(View(x), quantization);

          ExpectMatrix(file, group + "codes", q.codes);
          if (file.Has(group + "scale_inv")) {
            ExpectMatrix(file, group + "scale_inv", q.scales);
          } else {
            ExpectFactor(file, group + "scale", quantization, View(x));
          }
          EXPECT_EQ(q.tensor_scale, 1.0f);
          compared.insert(fmt::format("{}/{}/{}", producer, element, scale));
        }
      }
    }
  }

  std::set<std::string> promised;
  for (const char* scale : {"fp32", "pow2"}) {
    for (const char* producer :
         {"te_1x128", "te_128x128", "te_per_tensor", "torchao_per_tensor"}) {
      promised.insert(fmt::format("{}/e4m3/{}", producer, scale));
      promised.insert(fmt::format("{}/e5m2/{}", producer, scale));
    }
    for (const char* producer : {"deepgemm_1x128", "deepgemm_128x128"}) {
      promised.insert(fmt::format("{}/e4m3/{}", producer, scale));
    }
  }
  EXPECT_THAT(compared, IsSupersetOf(promised));
}

}  // namespace
}  // namespace isoloss::formats::fp8_scaled_vectors_test
