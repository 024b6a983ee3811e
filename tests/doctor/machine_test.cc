#include "isoloss/doctor/machine.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

#include "isoloss/base/temporary_folder.h"
#include "isoloss/doctor/launchers.h"
#include "isoloss/doctor/library_versions.h"

namespace isoloss::doctor::machine_test {
namespace {

namespace fs = std::filesystem;

class GroupLimitsTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root() / path).parent_path());
    std::ofstream(root() / path) << text;
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(GroupLimitsTest, OfVersion2AreTheLeastOfAllLevels) {
  Write("proc/self/cgroup", "0::/job/step\n");
  Write("sys/fs/cgroup/job/step/memory.max", "max\n");
  Write("sys/fs/cgroup/job/memory.max", "1048576\n");
  Write("sys/fs/cgroup/memory.max", "9048576\n");
  Write("sys/fs/cgroup/job/step/cpu.max", "150000 100000\n");
  Write("sys/fs/cgroup/job/cpu.max", "max 100000\n");

  const GroupLimits limits = ReadGroupLimits(root());

  EXPECT_EQ(limits.memory_bytes, 1048576);
  EXPECT_EQ(limits.processors, 1.5);
}

TEST_F(GroupLimitsTest, OfVersion1AreInAFolderForEachController) {
  Write("proc/self/cgroup", "5:memory:/box\n3:cpu,cpuacct:/box\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4096\n");
  Write("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");

  const GroupLimits limits = ReadGroupLimits(root());

  EXPECT_EQ(limits.memory_bytes, 4096);
  EXPECT_EQ(limits.processors, 0.5);
}

TEST_F(GroupLimitsTest, AreNoneWhereNothingCanBeRead) {
  EXPECT_EQ(ReadGroupLimits(root()).memory_bytes, std::nullopt);
  Write("proc/self/cgroup", "rubbish\n0::/../../..\n::\n");
  Write("sys/fs/cgroup/cpu.max", "1 0\n");

  const GroupLimits limits = ReadGroupLimits(root());

  EXPECT_EQ(limits.memory_bytes, std::nullopt);
  EXPECT_EQ(limits.processors, std::nullopt);
}

TEST(Machine, IsOfThisMachine) {
  const Machine machine = ExamineMachine();

  EXPECT_GE(machine.processors, 1);
  EXPECT_GE(machine.online, 1);
  EXPECT_GT(machine.available_bytes, 0);
  EXPECT_GT(machine.memory_bytes, machine.available_bytes);
}

TEST(Disk, IsThatOfTheNearestFolderThatIsThere) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "text";

  const Disk disk = ExamineDisk(folder.path() / "not" / "there");

  EXPECT_EQ(disk.existing, folder.path());
  EXPECT_EQ(disk.problem, "");
  EXPECT_GT(disk.free_bytes, 0);
  EXPECT_EQ(ExamineDisk(folder.path() / "file").problem, "it is no folder");
  EXPECT_EQ(ExamineDisk(folder.path() / "file/below").problem,
            "it is no folder");
}

TEST(Launchers, AreReadByWhatTheySay) {
  Launcher open;
  ReadLauncherVersion("mpirun (Open MPI) 4.1.4\n\nReport bugs to\n", open);
  EXPECT_EQ(open.library, "Open MPI");
  EXPECT_EQ(open.version, "4.1.4");
  Launcher hydra;
  ReadLauncherVersion("HYDRA build details:\n    Version:      4.0.2\n", hydra);
  EXPECT_EQ(hydra.library, "MPICH");
  EXPECT_EQ(hydra.version, "4.0.2");
  Launcher other;
  ReadLauncherVersion("Another MPI 1.0", other);
  EXPECT_EQ(other.library, "");
}

TEST(Libraries, HaveVersionsAndTellOtherReleasesApart) {
  for (const LibraryVersion& library : LibraryVersions()) {
    EXPECT_TRUE(library.compiled[0] >= '0' && library.compiled[0] <= '9')
        << library.name << " " << library.compiled;
    EXPECT_FALSE(library.Differs()) << library.name;
  }
  EXPECT_TRUE((LibraryVersion{"x", "1.10.8", "1.12.0"}).Differs());
  EXPECT_FALSE((LibraryVersion{"x", "1.10.8", "1.10.9"}).Differs());
  EXPECT_FALSE((LibraryVersion{"x", "1.10.8"}).Differs());
}

}  // namespace
}  // namespace isoloss::doctor::machine_test
