// tail.h5: rows whose length is no multiple of 32, and blocks along axis 0.
#include <gtest/gtest.h>

#include <string>

#include "comparison.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/mx_block.h"
#include "support/mx_elements.h"

namespace isoloss::formats::tail_vectors_test {
namespace {

using isoloss::test_support::H5File;

Quantization Spec(const Format& element, ScaleRule mode) {
  return {&element, mode, NonFinitePolicy::kBlockNan};
}

/// The registered formats that have a group below `parent`; the file also has
/// formats that are not registered.
std::vector<const Format*> FormatsBelow(const H5File& file,
                                        const std::string& parent) {
  std::vector<const Format*> formats;
  const std::set<std::string> groups = Groups(file, parent, "");
  for (const Format* format : MxElements()) {
    if (groups.contains(std::string(format->name))) formats.push_back(format);
  }
  return formats;
}

TEST(TailVectors, EveryLengthIsQuantisedAsOtherToolsDo) {
  const H5File file = OpenVectors("tail.h5");
  const std::set<std::string> lengths = Groups(file, "", "L");
  ASSERT_FALSE(lengths.empty());
  size_t partial_blocks = 0;
  for (const std::string& length : lengths) {
    const auto x = file.Read<float>(length + "/x");
    ASSERT_EQ(length, fmt::format("L{}", x.cols()));
    partial_blocks += x.cols() % kMxBlockSize != 0 ? 1 : 0;
    for (const Format* format : MxElements()) {
      const auto group = [&](const std::string& tool) {
        return fmt::format("{}/{}/{}", length, tool, format->name);
      };

      const MxMatrix floor =
          QuantizeMx(View(x), Spec(*format, ScaleRule::kFloor));
      const MxMatrix rceil =
          QuantizeMx(View(x), Spec(*format, ScaleRule::kRceil));

      ExpectMatrix(file, group("gfloat_floor") + "/scale", floor.scales);
      ExpectMatrix(file, group("gfloat_floor") + "/codes", floor.codes);
      ExpectMatrixValues(file, group("microxcaling_even"),
                         DequantizeMx(floor, *format));
      ExpectMatrix(file, group("torchao_rceil_zeropad") + "/scale",
                   rceil.scales);
      ExpectMatrix(file, group("torchao_rceil_zeropad") + "/codes",
                   rceil.codes);
    }
  }
  EXPECT_GT(partial_blocks, 0u);
}

TEST(TailVectors, ColumnsAreQuantisedAsTheRowsOfTheTranspose) {
  const H5File file = OpenVectors("tail.h5");
  const auto x = file.Read<float>("columns/x");
  const Matrix<float> columns = Transposed(View(x));

  const auto torchao = FormatsBelow(file, "columns/torchao_rceil");
  const auto microxcaling = FormatsBelow(file, "columns/microxcaling_even");
  ASSERT_FALSE(torchao.empty());
  ASSERT_FALSE(microxcaling.empty());
  for (const Format* format : torchao) {
    const MxMatrix q =
        QuantizeMx(columns.view(), Spec(*format, ScaleRule::kRceil));

    const std::string group =
        fmt::format("columns/torchao_rceil/{}/", format->name);
    ExpectMatrix(file, group + "scale_t", q.scales);
    ExpectMatrix(file, group + "codes_t", q.codes);
  }
  for (const Format* format : microxcaling) {
    const MxMatrix q =
        QuantizeMx(columns.view(), Spec(*format, ScaleRule::kFloor));

    ExpectMatrixValues(
        file, fmt::format("columns/microxcaling_even/{}", format->name),
        Transposed(DequantizeMx(q, *format).view()));
  }
}

}  // namespace
}  // namespace isoloss::formats::tail_vectors_test
