// Manifests that are sealed but say what can't be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "isoloss/base/digest.h"
#include "isoloss/base/error.h"
#include "isoloss/checkpoint/manifest.h"
#include "samples.h"

namespace isoloss::checkpoint::checkpoint_manifest_test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Manifest Sample() {
  return {.step = 120,
          .facts = {{"a \"fact\"\n", std::string("with\0zero", 9)}},
          .tensors = SampleTensors(),
          .digests = {1, 2, 3}};
}

/// The sample's text with `from` replaced, under a digest that fits again.
std::string ErrorOfReplaced(const std::string& from, const std::string& to) {
  std::string text = Sample().ToText();
  text.resize(text.rfind(",\n  \"manifest_xxh3\""));
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  text +=
      ",\n  \"manifest_xxh3\": \"" + DigestToHex(DigestOf(text)) + "\"\n}\n";
  try {
    ParseManifest(text, "m.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_THAT(error.what(), StartsWith("m.json: "));
    return error.what();
  }
  return "no error";
}

TEST(Manifest, ReadsWhatItWrites) {
  const Manifest written = Sample();

  const Manifest read = ParseManifest(written.ToText(), "m.json");

  EXPECT_EQ(read.step, 120);
  EXPECT_EQ(read.facts, written.facts);
  EXPECT_EQ(read.digests, written.digests);
  EXPECT_EQ(read.StateDigest(), written.StateDigest());
  EXPECT_EQ(TensorsHeader(120, read.tensors),
            TensorsHeader(120, written.tensors));
  EXPECT_EQ(ErrorOfReplaced("120", "120"), "no error");
}

TEST(Manifest, RefusesWhatIsSealedButCannotBe) {
  const auto refused = [](const std::string& from, const std::string& to,
                          const std::string& why) {
    EXPECT_THAT(ErrorOfReplaced(from, to), HasSubstr(why)) << to;
  };

  refused("isoloss-checkpoint", "another", "format `another`");
  refused("\"version\": 1", "\"version\": 2", "version 2");
  refused("\"step\": 120", "\"step\": -1", "`step`");
  refused("\"step\": 120", "\"step\": 18446744073709551615", "`step`");
  refused("\"step\": 120", "\"stop\": 120", "`step` is missing");
  refused("\"step\": 120", "\"step\": 121", "`header_xxh3`");
  refused("F32", "F16", "type `F16`");
  refused("counts", "weights.a", "two tensors are named `weights.a`");
  refused("\"none\"", "\"\"", "is named ``");
  refused("\"none\"", "\"__metadata__\"", "is named `__metadata__`");
  refused("\"bytes\": 24", "\"bytes\": 28", "tensor `weights.a` has 28 bytes");
  refused("{\n      \"bytes\": ", "{\n      \"bytes\": 1",
          "`files` states a size");
  refused("\"shape\": [\n        2,", "\"shape\": [\n        -2,", "no count");
  refused("\"shape\": [\n        2,", "\"shape\": [\n        2.0,", "no count");
  // 2^62 * 3 * 4 and 2^63 * 2 * 4 bytes: as 64-bit products small numbers.
  refused("\"shape\": [\n        2,", "\"shape\": [\n 4611686018427387904,",
          "which its shape has not");
  refused("\"shape\": [\n        2\n",
          "\"shape\": [\n 9223372036854775808, 2\n", "which its shape has not");
  refused("\"xxh3\": \"0000000000000001\"", "\"xxh3\": \"0000000000000004\"",
          "`state_xxh3`");
  refused("\"xxh3\": \"0000000000000001\"", "\"xxh3\": \"1\"",
          "16 hexadecimal digits");
  refused("{", "[", "no JSON object");
  refused("with", "\xff\xfe", "no JSON object");
}

TEST(Manifest, RefusesTextThatIsNotUtf8) {
  Manifest manifest = Sample();
  manifest.facts["path"] = "\xff";
  EXPECT_THROW(manifest.ToText(), Error);
  manifest = Sample();
  manifest.tensors[0].name = "\xff";
  EXPECT_THROW(manifest.ToText(), Error);
}

TEST(Manifest, StepFoldersHaveOneNameEach) {
  EXPECT_EQ(StepFolderName(120), "step-000120");
  EXPECT_EQ(StepFolderName(12345678), "step-12345678");
  for (const int64_t step : {int64_t{0}, int64_t{999999}, INT64_MAX}) {
    EXPECT_EQ(ParseStepFolderName(StepFolderName(step)), step);
  }
  for (const char* name :
       {"", "step-", "step-120", "step-0000120", "step-00012x", "step-+00120",
        "step--00001", "step-9223372036854775808", ".step-000120"}) {
    EXPECT_EQ(ParseStepFolderName(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace isoloss::checkpoint::checkpoint_manifest_test
