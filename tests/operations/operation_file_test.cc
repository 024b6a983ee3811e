// Files of operations: HDF5, safetensors, .npy and mappings; whole, damaged and
// hostile.
#include "isoloss/operations/operation_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/hdf5/handle.h"
#include "isoloss/operations/array_file.h"
#include "isoloss/operations/mapping.h"
#include "operations/samples.h"
#include "support/temporary_folder.h"

namespace isoloss::operations::operation_file_test {
namespace {

using test_support::TemporaryFolder;

void ExpectError(const std::function<void()>& act, const std::string& words) {
  try {
    act();
    ADD_FAILURE() << "nothing was refused, but should be: " << words;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(words));
  }
}

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <typename T>
void WriteTensor(const hdf5::Handle& group, const std::string& name,
                 const Array<T>& array) {
  const std::vector<uint64_t> extent(array.extent.begin(), array.extent.end());
  const hdf5::Handle dataset =
      hdf5::CreateDataset(group, name.c_str(), hdf5::TypeOf<T>(), extent);
  hdf5::WriteDataset<T>(dataset, array.values);
  if constexpr (std::is_same_v<T, float>) {
    hdf5::WriteAttribute(dataset, "dtype", array.type);
  }
  if constexpr (std::is_same_v<T, uint8_t>) {
    hdf5::WriteAttribute(dataset, "format", array.type);
  }
}

struct FileParts {
  int64_t version = 1;
  int64_t rank = 0;
  std::string group = "000000";
  bool has_module = true;
};

/// As a recorder writes it.
std::filesystem::path WriteFile(const TemporaryFolder& folder,
                                const Operation& operation,
                                const FileParts& parts = {}) {
  std::vector<std::byte> image;
  {
    const hdf5::Session session;
    const hdf5::Handle file = hdf5::CreateFileInMemory();
    hdf5::WriteAttribute(file, "operations_version", parts.version);
    hdf5::WriteAttribute(file, "run", std::string("mine"));
    hdf5::WriteAttribute(file, "step", int64_t{3});
    hdf5::WriteAttribute(file, "rank", parts.rank);
    hdf5::WriteAttribute(file, "ranks", int64_t{2});
    hdf5::WriteAttribute(file, "seed", int64_t{5});
    const hdf5::Handle all = hdf5::CreateGroup(file, "operations");
    const hdf5::Handle group = hdf5::CreateGroup(all, parts.group.c_str());
    hdf5::WriteAttribute(group, "type", operation.type);
    if (parts.has_module) {
      hdf5::WriteAttribute(group, "module", operation.module);
    }
    for (const auto& [name, number] : operation.numbers) {
      hdf5::WriteAttribute(group, name.c_str(), number);
    }
    for (const auto& [name, array] : operation.floats) {
      WriteTensor(group, name, array);
    }
    for (const auto& [name, array] : operation.integers) {
      WriteTensor(group, name, array);
    }
    for (const auto& [name, array] : operation.codes) {
      WriteTensor(group, name, array);
    }
    image = hdf5::FileImage(file);
  }
  const std::filesystem::path path = folder.path() / "a.operations-3.h5";
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(image.data()),
            static_cast<std::streamsize>(image.size()));
  return path;
}

TEST(ReadOperations, ReadsWhatARecorderWrote) {
  const TemporaryFolder folder;
  const Operation grouped = test_support::GroupedInputs();

  const OperationFile file = ReadOperations(WriteFile(folder, grouped));

  EXPECT_EQ(file.run, "mine");
  EXPECT_EQ(file.step, 3);
  EXPECT_EQ(file.ranks, 2);
  EXPECT_EQ(file.seed, 5);
  ASSERT_EQ(file.operations.size(), 1U);
  const Operation& read = file.operations[0];
  EXPECT_EQ(read.module, "moe.experts.w1");
  EXPECT_EQ(read.Find("weight")->extent, grouped.Find("weight")->extent);
  EXPECT_EQ(read.Find("weight")->values, grouped.Find("weight")->values);
  EXPECT_EQ(read.Find("weight")->type, "bfloat16");
  EXPECT_EQ(read.FindIntegers("group_ends")->values,
            grouped.FindIntegers("group_ends")->values);
}

TEST(ReadOperations, NamesFileOperationAndTensorOfWhatIsWrong) {
  const TemporaryFolder folder;
  const Operation linear = test_support::LinearInputs();
  const auto refuses = [&](const Operation& operation, const char* words,
                           const FileParts& parts = {}) {
    ExpectError([&] { ReadOperations(WriteFile(folder, operation, parts)); },
                words);
  };
  Operation damaged = linear;
  damaged.floats.erase("weight");
  refuses(damaged, "operation 0 (linear, layers.0.wq): weight is missing");
  damaged = linear;
  damaged.floats["grad_output"] = test_support::Zeros({3, 3});
  refuses(damaged, "grad_output is [3, 3]");
  damaged = test_support::GroupedInputs();
  damaged.integers["group_ends"].values = {20, 10, 49, 64};
  refuses(damaged, "group_ends has 10 after 20");
  damaged.integers["group_ends"].values = {20, 20, 49, 65};
  refuses(damaged, "group_ends has 65");
  damaged = linear;
  damaged.type = "convolution";
  refuses(damaged, "its type is `convolution`");
  damaged = linear;
  damaged.codes["fprop_x_codes"] = {.extent = {64, 96},
                                    .values = std::vector<uint8_t>(64 * 96)};
  refuses(damaged, "fprop_x has codes only");
  refuses(linear, "operations_version is 2", {.version = 2});
  refuses(linear, "rank is 2", {.rank = 2});
  refuses(linear, "/operations/000000: it is missing", {.group = "1"});
  refuses(linear, "attribute module is missing", {.has_module = false});
}

Operation Layer(size_t t, size_t k, size_t n) {
  return {.type = "linear",
          .module = "a.b",
          .floats = {{"x", test_support::Zeros({t, k})},
                     {"weight", test_support::Zeros({n, k})},
                     {"output", test_support::Zeros({t, n})}}};
}

TEST(CheckExtents, RefusesProductsOfNoWidth) {
  const auto check = [](size_t t, size_t k, size_t n) {
    CheckExtents({.path = "f", .operations = {Layer(t, k, n)}});
  };

  ExpectError([&] { check(8, 0, 16); }, "K, the width of x and weight, is 0");
  ExpectError([&] { check(8, 32, 0); }, "N, the rows of weight, is 0");
  EXPECT_NO_THROW(check(0, 0, 0));
  EXPECT_NO_THROW(check(0, 32, 16));
}

TEST(CheckExtents, RefusesCodesOfMoreBitsThanTheirFormatHas) {
  const auto check = [](const std::string& format, uint8_t last) {
    Operation layer = Layer(1, 2, 1);
    layer.codes["fprop_x_codes"] = {
        .extent = {1, 2}, .values = {0x0F, last}, .type = format};
    layer.codes["fprop_x_scales"] = {.extent = {1, 1}, .values = {127}};
    CheckExtents({.path = "f", .operations = {layer}});
  };

  ExpectError([&] { check("e2m1", 0x35); }, "byte 1 of fprop_x_codes is 53");
  ExpectError([&] { check("e3m2", 64); }, "from 0 to 63");
  ExpectError([&] { check("bf16", 0); }, "the format `bf16`");
  ExpectError([&] { check("", 0); }, "at most 8 bits");
  EXPECT_NO_THROW(check("e2m1", 0x0F));
  EXPECT_NO_THROW(check("e3m2", 63));
  EXPECT_NO_THROW(check("e4m3", 255));
}

TEST(ReadOperations, RefusesWhatIsCutOffOrNoHdf5) {
  const TemporaryFolder folder;
  const std::filesystem::path path =
      WriteFile(folder, test_support::LinearInputs());
  const auto size = std::filesystem::file_size(path);

  for (const size_t part : {0UL, 7UL, 100UL, size / 2, size - 1}) {
    std::filesystem::resize_file(path, part);
    ExpectError([&] { ReadOperations(path); }, "a.operations-3.h5");
  }
  ExpectError([&] { ReadOperations(folder.path() / "none.h5"); }, "none.h5");
  ExpectError([&] { ReadOperations(folder.path()); }, "file");
}

// ---- safetensors and .npy ---------------------------------------------------

std::string Safetensors(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  text[0] = static_cast<char>(header.size() & 0xFF);
  text[1] = static_cast<char>(header.size() >> 8);
  return text + header + data;
}

std::string Npy(const std::string& header, const std::string& data) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size());
  text += '\0';
  return text + header + data;
}

std::string RawFloats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), 4 * values.size()};
}

TEST(ParseSafetensors, WidensEachTypeExactly) {
  const std::string text = Safetensors(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]},)"
      R"("c":{"dtype":"F16","shape":[1],"data_offsets":[10,12]},)"
      R"("d":{"dtype":"F8_E4M3","shape":[],"data_offsets":[12,13]},)"
      R"("__metadata__":{"x":"y"}})",
      RawFloats({1.5f, -2.0f}) + std::string("\xc0\x3f\x00\x3e\x7e", 5));

  const auto arrays = ParseSafetensors(Bytes(text), "f");

  ASSERT_EQ(arrays.size(), 4U);
  EXPECT_EQ(FloatsOf(arrays.at("a"), "a").values,
            (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(FloatsOf(arrays.at("b"), "b").values, std::vector<float>{1.5f});
  EXPECT_EQ(FloatsOf(arrays.at("b"), "b").type, "bfloat16");
  EXPECT_EQ(FloatsOf(arrays.at("c"), "c").values, std::vector<float>{1.5f});
  EXPECT_EQ(FloatsOf(arrays.at("d"), "d").values, std::vector<float>{448.0f});
  EXPECT_EQ(CodesOf(arrays.at("d"), "d").values, std::vector<uint8_t>{0x7E});
  ExpectError([&] { IntegersOf(arrays.at("a"), "a"); }, "of type F32");
}

TEST(ParseSafetensors, RefusesWhatLiesOutsideOfTheFile) {
  const auto refuses = [](const std::string& text, const char* words) {
    ExpectError([&] { ParseSafetensors(Bytes(text), "f"); }, words);
  };
  refuses("", "its header has 0 bytes");
  refuses(std::string(8, '\xff'), "its header has");
  refuses(Safetensors("[1]", ""), "no JSON object");
  refuses(Safetensors("{", ""), "no JSON object");
  refuses(Safetensors(R"({"a":1})", ""), "its entry is incomplete");
  refuses(Safetensors(
              R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", ""),
          "it lies from 0 to 8");
  refuses(Safetensors(
              R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", ""),
          "it lies from 8 to 0");
  refuses(Safetensors(R"({"a":{"dtype":"F32","shape":[1099511627775,)"
                      R"(1099511627775],"data_offsets":[0,0]}})",
                      ""),
          "need another number");
  refuses(Safetensors(R"({"a":{"dtype":"F32","shape":[1099511627776],)"
                      R"("data_offsets":[0,0]}})",
                      ""),
          "axes are from 0 to 2^40");
}

TEST(ParseNpy, ReadsRowMajorOnesOnly) {
  const std::string header =
      "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n";
  const auto refuses = [](const std::string& text, const char* words) {
    ExpectError([&] { ParseNpy(Bytes(text), "f"); }, words);
  };
  const std::string whole = Npy(header, RawFloats({1.0f, 2.0f}));

  const StoredArray array = ParseNpy(Bytes(whole), "f");

  EXPECT_EQ(array.extent, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(FloatsOf(array, "f").values, (std::vector<float>{1.0f, 2.0f}));
  refuses(whole.substr(0, whole.size() - 1), "7 bytes of data");
  refuses("PK", "does not begin with");
  refuses(Npy("{'descr': '<f4'}", ""), "no fortran_order");
  refuses(Npy("{'descr': '<f4', 'fortran_order': True, 'shape': ()}", ""),
          "column by column");
  refuses(Npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}", ""),
          "its type is |O");
  refuses(Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1)}", ""),
          "an axis that is none");
}

// ---- mappings ---------------------------------------------------------------

constexpr const char* kMapping = R"(run = "mine"
step = 2
[[operations]]
type = "dispatch"
module = "moe"
[operations.tensors]
tokens = "t.safetensors:tokens"
source = "source.npy"
rows = "t.safetensors:rows"
)";

class Mapping : public ::testing::Test {
 protected:
  Mapping() {
    Write("t.safetensors",
          Safetensors(
              R"({"tokens":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
              R"("rows":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}})",
              RawFloats({1.0f, 2.0f})));
    Write("source.npy",
          Npy("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }",
              std::string("\x01\x00\x00\x00", 4)));
  }
  std::filesystem::path Write(const std::string& name,
                              const std::string& text) const {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  void Refuses(const std::string& from, const std::string& to,
               const std::string& words) const {
    std::string text = kMapping;
    text.replace(text.find(from), from.size(), to);
    const auto path = Write("m.toml", text);
    ExpectError([&] { ReadOperations(path); }, words);
  }

  TemporaryFolder folder_;
};

TEST_F(Mapping, NamesTensorsOfFilesBesideIt) {
  const OperationFile file = ReadOperations(Write("m.toml", kMapping));

  ASSERT_EQ(file.operations.size(), 1U);
  EXPECT_EQ(file.step, 2);
  EXPECT_EQ(file.operations[0].Find("rows")->values, std::vector<float>{2.0f});
  EXPECT_EQ(file.operations[0].FindIntegers("source")->values,
            std::vector<int64_t>{1});
}

TEST_F(Mapping, OpensNoFileElsewhere) {
  Refuses("source.npy", "../source.npy", "in the mapping's own folder");
  Refuses("source.npy", "/etc/passwd.npy", "in the mapping's own folder");
  Refuses("source.npy", "..npy", "in the mapping's own folder");
  Refuses("source.npy", "source.pt", "in the mapping's own folder");
  std::filesystem::create_symlink(folder_.path() / "source.npy",
                                  folder_.path() / "link.npy");
  Refuses("source.npy", "link.npy", "is a symbolic link");
}

TEST_F(Mapping, NamesThePlaceOfWhatIsWrong) {
  Refuses(":rows", ":other", "has no such tensor");
  Refuses("module", "modul", "unknown key `operations.modul`");
  Refuses("type = \"dispatch\"", "", "m.toml:3");
  Refuses("source.npy", "t.safetensors:rows", "this tensor has integers");
}

}  // namespace
}  // namespace isoloss::operations::operation_file_test
