// Sealed files that HDF5 would obey but that say more than numbers: none of
// them reaches beyond itself, and none takes the reader down.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/stat.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "isoloss/hdf5/handle.h"
#include "isoloss/hdf5/isolated.h"
#include "isoloss/runlog/writer.h"
#include "runlog/log_file.h"
#include "runlog/read_mutations.h"
#include "runlog/sample_log.h"
#include "support/temporary_folder.h"

namespace isoloss::runlog::hostile_file_test {
namespace {

using isoloss::test_support::Bytes;
using isoloss::test_support::EditWithHdf5;
using isoloss::test_support::ErrorOfReading;
using isoloss::test_support::Sealed;
using isoloss::test_support::TemporaryFolder;
using isoloss::test_support::Unlink;
using isoloss::test_support::Unsealed;
using isoloss::test_support::WriteBytes;
using ::testing::HasSubstr;

struct Trick {
  const char* name;
  std::function<void(const hdf5::Handle& file)> apply;
  std::string message;
};

void PrintTo(const Trick& trick, std::ostream* out) { *out << trick.name; }

/// Puts a dataset of doubles in the place of /steps/loss_nats.
void PutLosses(const hdf5::Handle& file, const std::vector<hsize_t>& extent,
               const std::function<void(hid_t layout)>& shape) {
  Unlink(file, "steps/loss_nats");
  const hdf5::Handle layout(H5Pcreate(H5P_DATASET_CREATE), &H5Pclose);
  shape(layout.get());
  const std::vector<hsize_t> most(extent.size(), H5S_UNLIMITED);
  const bool can_grow = H5Pget_layout(layout.get()) == H5D_CHUNKED;
  const hdf5::Handle space(
      H5Screate_simple(static_cast<int>(extent.size()), extent.data(),
                       can_grow ? most.data() : nullptr),
      &H5Sclose);
  const hdf5::Handle dataset(
      H5Dcreate2(file.get(), "steps/loss_nats", H5T_IEEE_F64LE, space.get(),
                 H5P_DEFAULT, layout.get(), H5P_DEFAULT),
      &H5Dclose);
  ASSERT_GE(dataset.get(), 0);
  hdf5::WriteAttribute(dataset, "unit", std::string("nat"));
}

void PutVirtual(const hdf5::Handle& file, const char* source) {
  PutLosses(file, {5}, [source](hid_t layout) {
    const hsize_t extent = 5;
    const hdf5::Handle space(H5Screate_simple(1, &extent, nullptr), &H5Sclose);
    ASSERT_GE(H5Pset_virtual(layout, space.get(), source, "/steps/loss_nats",
                             space.get()),
              0);
  });
}

constexpr uint32_t kLongText = 50000;

/// 1000 texts, of which the first one is long.
void PutOneLongText(const hdf5::Handle& file) {
  Unlink(file, "events/text");
  const hdf5::Handle texts =
      hdf5::CreateDataset(file, "events/text", hdf5::TypeOf<std::string>(),
                          std::vector<uint64_t>{1000});
  hdf5::WriteAttribute(texts, "unit", std::string());
  std::vector<std::string> values(1000);
  values[0] = std::string(kLongText, 'x');
  hdf5::WriteDataset<std::string>(texts, values);
}

std::vector<Trick> Tricks() {
  return {
      Trick{"SoftLink",
            [](const hdf5::Handle& file) {
              Unlink(file, "steps/loss_nats");
              H5Lcreate_soft("/steps/lr", file.get(), "steps/loss_nats",
                             H5P_DEFAULT, H5P_DEFAULT);
            },
            "/steps/loss_nats is a soft, external or user-defined link"},
      Trick{"ExternalLink",
            [](const hdf5::Handle& file) {
              Unlink(file, "steps/loss_nats");
              H5Lcreate_external("other.h5", "/steps/loss_nats", file.get(),
                                 "steps/loss_nats", H5P_DEFAULT, H5P_DEFAULT);
            },
            "/steps/loss_nats is a soft, external or user-defined link"},
      Trick{"ExternalLinkOutsideOfTheSchema",
            [](const hdf5::Handle& file) {
              H5Lcreate_external("other.h5", "/", file.get(), "more",
                                 H5P_DEFAULT, H5P_DEFAULT);
            },
            "/more is a soft, external or user-defined link"},
      Trick{"SecondLink",
            [](const hdf5::Handle& file) {
              H5Lcreate_hard(file.get(), "steps/lr", file.get(), "steps/lr2",
                             H5P_DEFAULT, H5P_DEFAULT);
            },
            "is an object that another link leads to"},
      Trick{"Cycle",
            [](const hdf5::Handle& file) {
              H5Lcreate_hard(file.get(), "/", file.get(), "steps/up",
                             H5P_DEFAULT, H5P_DEFAULT);
            },
            "/steps/up is an object that another link leads to"},
      Trick{"ExternalStorage",
            [](const hdf5::Handle& file) {
              PutLosses(file, {5}, [](hid_t layout) {
                ASSERT_GE(H5Pset_external(layout, "/etc/passwd", 0, 40), 0);
              });
            },
            "the values of /steps/loss_nats are in another file"},
      Trick{"VirtualDatasetOfAnotherFile",
            [](const hdf5::Handle& file) { PutVirtual(file, "other.h5"); },
            "/steps/loss_nats is a virtual dataset"},
      Trick{"VirtualDatasetOfItself",
            [](const hdf5::Handle& file) { PutVirtual(file, "."); },
            "/steps/loss_nats is a virtual dataset"},
      Trick{"MoreThanTheFileCanHold",
            [](const hdf5::Handle& file) {
              PutLosses(file, {1U << 28U}, [](hid_t layout) {
                const hsize_t chunk = 1U << 16U;
                H5Pset_chunk(layout, 1, &chunk);
              });
            },
            "the extent of /steps/loss_nats is [268435456]"},
      Trick{"HugeChunk",
            [](const hdf5::Handle& file) {
              PutLosses(file, {5}, [](hid_t layout) {
                const hsize_t chunk = 1U << 28U;
                H5Pset_chunk(layout, 1, &chunk);
                H5Pset_deflate(layout, 9);
              });
            },
            "/steps/loss_nats has chunks of 268435456 values"},
      Trick{"OtherFilter",
            [](const hdf5::Handle& file) {
              PutLosses(file, {5}, [](hid_t layout) {
                const hsize_t chunk = 5;
                H5Pset_chunk(layout, 1, &chunk);
                ASSERT_GE(H5Pset_nbit(layout), 0);
              });
            },
            "/steps/loss_nats goes through filter 5"},
      Trick{"SameFilterTwice",
            [](const hdf5::Handle& file) {
              PutLosses(file, {5}, [](hid_t layout) {
                const hsize_t chunk = 5;
                H5Pset_chunk(layout, 1, &chunk);
                H5Pset_deflate(layout, 9);
                H5Pset_deflate(layout, 9);
              });
            },
            "each at most once"},
      Trick{"References",
            [](const hdf5::Handle& file) {
              const hsize_t extent = 5;
              const hdf5::Handle space(H5Screate_simple(1, &extent, nullptr),
                                       &H5Sclose);
              const hdf5::Handle dataset(
                  H5Dcreate2(file.get(), "refs", H5T_STD_REF_OBJ, space.get(),
                             H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                  &H5Dclose);
            },
            "/refs holds references"},
      Trick{"StoredType",
            [](const hdf5::Handle& file) {
              const hdf5::Handle type(H5Tcopy(H5T_IEEE_F64LE), &H5Tclose);
              H5Tcommit2(file.get(), "type", type.get(), H5P_DEFAULT,
                         H5P_DEFAULT, H5P_DEFAULT);
            },
            "/type is a stored type"},
      Trick{"DeepGroups",
            [](const hdf5::Handle& file) {
              std::string path = "g";
              for (int depth = 0; depth < 20; ++depth) {
                hdf5::CreateGroup(file, path.c_str());
                path += "/g";
              }
            },
            "groups are at most 8 deep"},
      Trick{"NegativeStep",
            [](const hdf5::Handle& file) {
              hdf5::WriteDataset<int64_t>(
                  test_support::OpenDataset(file, "steps/step"),
                  std::vector<int64_t>{-(int64_t{1} << 57), 2, 3, 4, 5});
            },
            "/steps/step in row 0 is -144115188075855872"},
      Trick{"LastStep",
            [](const hdf5::Handle& file) {
              hdf5::WriteDataset<int64_t>(
                  test_support::OpenDataset(file, "steps/step"),
                  std::vector<int64_t>{1, 2, 3, 4, INT64_MAX});
            },
            "/steps/step in row 4 is 9223372036854775807"},
      Trick{"StepTwice",
            [](const hdf5::Handle& file) {
              hdf5::WriteDataset<int64_t>(
                  test_support::OpenDataset(file, "steps/step"),
                  std::vector<int64_t>{1, 2, 2, 4, 5});
            },
            "/steps/step in row 2 is 2, but must be above 2"},
      Trick{"TimeIsNotANumber",
            [](const hdf5::Handle& file) {
              hdf5::WriteDataset<double>(
                  test_support::OpenDataset(file, "events/unix_seconds"),
                  std::vector<double>{1.0, std::nan("")});
            },
            "/events/unix_seconds in row 1 is nan"},
      Trick{"NegativeCount",
            [](const hdf5::Handle& file) {
              H5Adelete(file.get(), "ranks");
              hdf5::WriteAttribute(file, "ranks", int64_t{-1});
            },
            "attribute ranks is -1"},
      Trick{"ManyAttributes",
            [](const hdf5::Handle& file) {
              for (int64_t i = 0; i < 300; ++i) {
                hdf5::WriteAttribute(file, std::to_string(i).c_str(), i);
              }
            },
            "attributes, but an object of isoloss has at most 256"},
  };
}

class HostileFileTest : public ::testing::TestWithParam<Trick> {};

TEST_P(HostileFileTest, IsRefusedByItsRule) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, GetParam().apply);
  WriteBytes(path, Sealed(Bytes(path)));

  const std::string message = ErrorOfReading(path, ErrorKind::kFormat);

  EXPECT_THAT(message, HasSubstr(path.string()));
  EXPECT_THAT(message, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(Tricks, HostileFileTest, ::testing::ValuesIn(Tricks()),
                         [](const auto& test) {
                           return std::string(test.param.name);
                         });

/// A reference to a text is 4 bytes of length, 8 of address and 4 of place. The
/// first one of /events/text, before 999 of nothing, takes the place of all.
TEST(HostileFile, OneStringCannotStandForMany) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  EditWithHdf5(path, PutOneLongText);
  std::string bytes = Bytes(path);
  const uint32_t length = kLongText;
  const std::string_view needle(reinterpret_cast<const char*>(&length), 4);
  const std::string no_length(4, '\0');
  size_t place = bytes.find(needle);
  while (place != std::string::npos &&
         (bytes.compare(place + 16, 4, no_length) != 0 ||
          bytes.compare(place + 32, 4, no_length) != 0)) {
    place = bytes.find(needle, place + 1);
  }
  ASSERT_NE(place, std::string::npos);
  const std::string reference = bytes.substr(place, 16);
  for (size_t i = 0; i < 1000; ++i) {
    bytes.replace(place + 16 * i, 16, reference);
  }
  WriteBytes(path, Sealed(bytes));

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
              HasSubstr("with /events/text the strings of the file have more"));
}

TEST(HostileFile, ASparseFileIsRefusedBeforeItIsLoaded) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  std::filesystem::resize_file(path, uint64_t{200} << 30);

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
              HasSubstr("has 214748364800 bytes without a trailer"));
}

TEST(HostileFile, APipeIsRefusedAtOnce) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kIo),
              HasSubstr("is a folder or device"));
}

TEST(HostileFile, TextsAreShownWithoutControlCharacters) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  RunLog log = SampleLog();
  log.events[0].text = "\x1b[2J\nPASS";
  log.provenance.arm = "bf16\n\x9b";
  WriteRunLog(log, path);

  const RunLog read = ReadRunLog(path);

  EXPECT_EQ(read.events[0].text, "\\x1b[2J\\nPASS");
  EXPECT_EQ(read.provenance.arm, "bf16\\n\\x9b");
}

TEST(HostileFile, OnlyTextsOfLinesKeepThem) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  RunLog log = SampleLog();
  log.provenance.experiment_text = "a\nb\x1b";
  WriteRunLog(log, path);
  EXPECT_EQ(ReadRunLog(path).provenance.experiment_text, "a\nb\\x1b");

  EditWithHdf5(path, [](const hdf5::Handle& file) {
    const hdf5::Handle losses =
        test_support::OpenDataset(file, "steps/loss_nats");
    H5Adelete(losses.get(), "unit");
    hdf5::WriteAttribute(losses, "unit", std::string("nat\nPASS"));
  });
  WriteBytes(path, Sealed(Bytes(path)));

  EXPECT_THAT(ErrorOfReading(path, ErrorKind::kFormat),
              HasSubstr("`nat\\nPASS`"));
}

/// Of a process, so that tests that run at the same time don't see it.
class MemoryLimit {
 public:
  explicit MemoryLimit(const char* mebibytes) {
    ::setenv("ISOLOSS_MEMORY_MIB", mebibytes, 1);
  }
  ~MemoryLimit() { ::unsetenv("ISOLOSS_MEMORY_MIB"); }
};

TEST(HostileFile, WhatIsHeldIsCountedTogether) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run.h5";
  WriteRunLog(SampleLog(), path);
  constexpr uint64_t kEvents = 2500;  // of 2 texts: 1.8 MiB
  EditWithHdf5(path, [](const hdf5::Handle& file) {
    const auto put = [&file]<typename T>(const char* name, const T&) {
      Unlink(file, name);
      const hdf5::Handle dataset = hdf5::CreateDataset(
          file, name, hdf5::TypeOf<T>(), std::vector<uint64_t>{kEvents});
      hdf5::WriteAttribute(dataset, "unit",
                           std::string(std::is_same_v<T, double> ? "s" : ""));
      hdf5::WriteDataset<T>(dataset, std::vector<T>(kEvents));
    };
    put("events/unix_seconds", 0.0);
    put("events/kind", std::string());
    put("events/text", std::string());
  });
  WriteBytes(path, Sealed(Bytes(path)));
  const MemoryLimit limit("2");
  std::vector<RunLog> held = {ReadRunLog(path)};
  held.push_back(held.front());  // is not another file

  const auto hold_many = [&] {
    for (int i = 0; i < 100; ++i) held.push_back(ReadRunLog(path));
  };
  try {
    hold_many();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("all files that are held here"));
  }

  held.erase(held.begin() + 1, held.end());
  EXPECT_EQ(ReadRunLog(path).events.size(), kEvents);

  // What was given up counts no longer, and no more than there was.
  held.clear();
  const size_t bytes = ReadRunLog(path).charge->bytes();
  EXPECT_GT(bytes, 0);
  hdf5::ReadCharge charge = ReadRunLog(path).charge;
  charge = hdf5::Lessened(charge, bytes / 4);
  EXPECT_EQ(charge->bytes(), bytes - bytes / 4);
  for (int i = 0; i < 100; ++i) {
    held.push_back(ReadRunLog(path));
    held.back().charge = hdf5::Lessened(held.back().charge, bytes + 1);
    EXPECT_EQ(held.back().charge->bytes(), 0);
  }
  EXPECT_EQ(hdf5::Lessened(nullptr, 1), nullptr);
}

TEST(RunIsolated, SaysHowTheProcessEnded) {
  const hdf5::IsolationLimits limits = {size_t{64} << 20, 1};

  EXPECT_EQ(hdf5::RunIsolated(limits, [] {}), "");
  EXPECT_THAT(hdf5::RunIsolated(limits, [] { __builtin_trap(); }),
              HasSubstr("was ended by signal"));
  EXPECT_THAT(hdf5::RunIsolated(limits, [] { throw std::bad_alloc(); }),
              HasSubstr("ran out of its 64 MiB"));
  EXPECT_THAT(hdf5::RunIsolated(limits, [] { throw std::out_of_range("x"); }),
              HasSubstr("ended with an exception"));
  const auto spin = [] {
    // The kernel counts processor time only while it is used.
    for (std::atomic<int> i = 0;; ++i) continue;
  };
  EXPECT_THAT(hdf5::RunIsolated(limits, spin), HasSubstr("took more than 1 s"));
}

TEST(RunIsolated, OpensNoFile) {
  hdf5::SharedMemory memory(1);

  hdf5::RunIsolated({size_t{64} << 20, 1}, [&] {
    std::FILE* file = std::fopen("/dev/null", "r");
    memory.bytes()[0] = std::byte{file == nullptr ? uint8_t{1} : uint8_t{2}};
  });

  EXPECT_EQ(memory.bytes()[0], std::byte{1});
}

TEST(HostileFile, MutationsAreReadOrRefused) { ReadMutations(40, 300); }

}  // namespace
}  // namespace isoloss::runlog::hostile_file_test
