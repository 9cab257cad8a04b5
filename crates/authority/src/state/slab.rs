//! Tasks in numbered slots. It grows by chunks, so that ten million tasks never move and growth never stalls
//! the writer.

use crate::Task;

/// Where a task lives. A slot keeps its task until the task is purged, then it is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub u32);

const CHUNK_TASKS: usize = 1_024;

#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Vec<Option<Task>>>,
    free: Vec<Slot>,
    len: usize,
}

impl Slab {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more than the highest slot ever used.
    pub(crate) fn end(&self) -> Slot {
        let full = self.chunks.len().saturating_sub(1) * CHUNK_TASKS;
        Slot((full + self.chunks.last().map_or(0, Vec::len)) as u32)
    }

    pub(crate) fn insert(&mut self, task: Task) -> Slot {
        self.len += 1;
        if let Some(slot) = self.free.pop() {
            *self.cell(slot) = Some(task);
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_TASKS) {
            self.chunks.push(Vec::with_capacity(CHUNK_TASKS));
        }
        let slot = self.end();
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(Some(task));
        }
        slot
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<&Task> {
        let at = slot.0 as usize;
        self.chunks.get(at / CHUNK_TASKS)?.get(at % CHUNK_TASKS)?.as_ref()
    }

    /// The task in a slot that an index names; an empty one there is a bug.
    pub(crate) fn at(&self, slot: Slot) -> &Task {
        self.get(slot).expect("an index names an empty slot")
    }

    pub(crate) fn at_mut(&mut self, slot: Slot) -> &mut Task {
        self.cell(slot).as_mut().expect("an index names an empty slot")
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Task {
        let task = self.cell(slot).take().expect("an index names an empty slot");
        self.free.push(slot);
        self.len -= 1;
        task
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Task)> {
        (0..self.end().0).filter_map(|slot| Some((Slot(slot), self.get(Slot(slot))?)))
    }

    fn cell(&mut self, slot: Slot) -> &mut Option<Task> {
        let at = slot.0 as usize;
        &mut self.chunks[at / CHUNK_TASKS][at % CHUNK_TASKS]
    }
}
