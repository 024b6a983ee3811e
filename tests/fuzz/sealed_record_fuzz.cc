// Any bytes as looks.json: refused with an Error, or a record that can be
// written and read again.
//
// What is a JSON object is also read with a digest that fits, so that the
// checks behind the digest are reached.
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/entry_point.h"
#include "isoloss/base/error.h"
#include "isoloss/base/text_file.h"
#include "isoloss/gate/looks.h"
#include "isoloss/gate/sealed_json.h"
#include "support/temporary_folder.h"

namespace {

using namespace isoloss;        // NOLINT(google-build-using-namespace)
using namespace isoloss::gate;  // NOLINT(google-build-using-namespace)

/// One file for all inputs of this process.
const std::filesystem::path& File() {
  static const test_support::TemporaryFolder folder;
  static const std::filesystem::path file = folder.path() / "record.json";
  return file;
}

template <typename Read, typename Write>
void Check(const Read& read, const Write& write) {
  try {
    const auto record = read(File());
    write(record, File());
    ISOLOSS_ASSERT(read(File()) == record);
  } catch (const Error& error) {
    ISOLOSS_ASSERT(error.kind() == ErrorKind::kFormat);
  }
}

void CheckText(std::string_view text) {
  std::ofstream(File()) << text;
  Check(ReadLooks, WriteLooks);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  CheckText(text);
  SealedJson json =
      SealedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  json.erase("digest");
  WriteSealed(json, File());
  CheckText(ReadTextFile(File(), ""));
  return 0;
}

std::vector<std::string> FuzzSeeds() {
  const auto text = [] { return ReadTextFile(File(), ""); };
  std::vector<std::string> seeds;
  WriteLooks({.experiment = "demo",
              .config_digest = "c0",
              .corpus_digest = "d0",
              .baseline_arm = "bf16",
              .arms = {{"bf16", "aa"}, {"mxfp8", "bb"}},
              .planned = {4, 8},
              .looks = {{.seeds = {1, 2, 3, 4},
                         .policy_digest = "00ff",
                         .nominal_alpha = 0.01,
                         .outcomes = {{"mxfp8", "INCONCLUSIVE"}}}}},
             File());
  seeds.push_back(text());
  return seeds;
}
