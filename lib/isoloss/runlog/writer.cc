#include "isoloss/runlog/writer.h"

#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema_writer.h"

namespace isoloss::runlog {

void WriteRunLog(const RunLog& log, const std::filesystem::path& path) {
  CheckSize(RunLog(), log);
  hdf5::WriteSealedFile(
      path, hdf5::kRunLogFile, [&log](const hdf5::Handle& file) {
        WriteColumns(file, "run log", SchemaOf<RunLog>(), View(log));
      });
}

}  // namespace isoloss::runlog
