/* Page, cap and queue for SPIN: two puts into a cache that has room for CAP entries, a third process, and one death at
   any step. Written for itself, not made from the model in Python, with the names of its steps. The third process:
   REMOVE, RECOUNT or POLICY, which lowers the cap by one. */
#define N 3
#define NOBODY 255
#define WRITERS 2
byte page = HELD, cap = CAP, lock = NOBODY, room = NOBODY, deaths = 0;
bool entry[2], dead[N], done[N];
byte staged[N];                                     /* 1: an empty file, 2: one with its bytes */

#define DISK (entry[0] + entry[1] + (staged[0] == 2) + (staged[1] == 2))
#define HELD_NOW (entry[0] + entry[1] + (staged[0] > 0) + (staged[1] > 0))
#define OF_THE_DEAD ((dead[0] && staged[0]) || (dead[1] && staged[1]))
#define DIE if :: deaths < 1 -> atomic { deaths++; dead[me] = true; done[me] = true; \
    if :: lock == me -> lock = NOBODY :: else fi; if :: room == me -> room = NOBODY :: else fi; goto end } :: skip fi
#define TAKE atomic { lock == NOBODY -> lock = me }
#define GIVE atomic { lock = NOBODY }
/* Under the lock: remove what the dead have staged, and count what is there. */
#define COUNT atomic { each = 0; counted = entry[0] + entry[1]; \
    do :: each < WRITERS -> if :: dead[each] -> staged[each] = 0 :: staged[each] && !dead[each] -> counted++ \
    :: else fi; each++ :: else -> break od }

proctype Put(byte me; byte key) {
    byte read, counted, each;
begin:
    DIE; TAKE;                                      /* lock_descriptor(locks/SHARD) */
    DIE; read = page;                               /* pread(state) */
    DIE; staged[me] = 1;                            /* open(tmp/STAGED) */
#ifdef SUM_FIRST                                    /* a fault: the sum is looked at before the own reservation */
    DIE; counted = page;
#endif
    DIE; page = read + 1;                           /* pwrite(state, SHARD) */
    DIE; GIVE;
#ifdef SUM_FIRST
    DIE; if :: counted <= cap -> goto write :: else fi;
#endif
sum:
    DIE; if :: page <= cap -> goto write :: else fi;    /* pread(state) */
#ifndef NO_QUEUE                                    /* a fault: nobody has the right of way */
    DIE; if
    :: room == me -> skip
    :: atomic { room == NOBODY -> room = me }       /* lock_descriptor(locks/room) */
    :: room != NOBODY && room != me -> goto back
    fi;
#endif
    DIE; TAKE;
    DIE; read = page;
    DIE; if
    :: entry[0] -> entry[0] = false; DIE; page = read - 1   /* unlink(entries/SHARD/NAME), pwrite(state, SHARD) */
    :: entry[1] -> entry[1] = false; DIE; page = read - 1
    :: !entry[0] && !entry[1] ->
         COUNT;
         if
         :: counted != read -> page = counted
         :: else -> GIVE; goto nothing
         fi
    fi;
    DIE; GIVE;
    goto sum;
nothing:                                            /* to evict: the rest is others' */
#ifndef NO_QUEUE
    DIE; page <= cap || entry[0] || entry[1] || page != HELD_NOW || OF_THE_DEAD;   /* the head waits, and looks again */
    goto sum;
#endif
back:
    DIE; TAKE;
    DIE; read = page;
    DIE; staged[me] = 0;                            /* unlink(tmp/STAGED) */
    DIE; page = read - 1;
    DIE; GIVE;
#ifndef NO_QUEUE
    DIE; room == NOBODY;                            /* it waits for the head to leave */
#endif
    goto begin;
write:
    DIE; staged[me] = 2;                            /* write(tmp/STAGED) */
    if :: room == me -> room = NOBODY :: else fi;   /* unlock_descriptor(locks/room) */
    DIE; TAKE;
    DIE; read = page;
    DIE; if                                         /* rename(tmp/STAGED, entries/SHARD/NAME) */
    :: atomic { entry[key] -> staged[me] = 0 };
#ifdef CREDITED_TWICE                               /* a fault */
       read = read - 1;
#endif
       DIE; page = read - 1
    :: atomic { !entry[key] -> staged[me] = 0; entry[key] = true }
    fi;
    DIE; GIVE;
    done[me] = true;
end: skip
}

proctype Third() {
    byte me = 2, read, counted, each;
#ifdef REMOVE
    DIE; TAKE;
    DIE; read = page;
    DIE; if :: entry[0] -> entry[0] = false; DIE; page = read - 1 :: else fi;
    DIE; GIVE;
#endif
#ifdef RECOUNT
    DIE; TAKE;
    DIE; COUNT;
    DIE; page = counted;
    DIE; GIVE;
#endif
#ifdef POLICY
    DIE; cap--;                                     /* pwrite(state, cap) */
sum:
    DIE; if :: page <= cap -> goto finish :: else fi;
    DIE; TAKE;
    DIE; read = page;
    DIE; if
    :: entry[0] -> entry[0] = false; DIE; page = read - 1
    :: entry[1] -> entry[1] = false; DIE; page = read - 1
    :: !entry[0] && !entry[1] ->
         COUNT;
         if :: counted != read -> page = counted :: else -> GIVE; goto finish fi
    fi;
    DIE; GIVE;
    goto sum;
finish:
#endif
    done[me] = true;
end: skip
}

init { atomic { entry[0] = (HELD > 0); entry[1] = (HELD > 1); run Put(0, 0); run Put(1, KEY); run Third() } }

ltl ends { <> (done[0] && done[1] && done[2]) }
ltl capped { [] (DISK <= CAP) }
ltl counted { [] (page >= DISK) }
ltl exact { [] (!(done[0] && done[1] && done[2] && deaths == 0) || page == DISK) }
